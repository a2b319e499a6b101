"""D4RL's flat arrays in HDF5, where flags alone end the episodes."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import fastgae
from fastgae.data import DataError, compute

from .recorded import assert_same_bits, limit

h5py = pytest.importorskip("h5py")


def critic(batch):
    return batch["observations"][:, 0] * np.float32(0.5)


def write(path, recorded, **changed):
    """Write the recorded episodes as D4RL does, with observations whose first number is twice the value."""
    rows = len(recorded.rewards)
    actions = np.zeros((rows, 3), np.float32)
    arrays = {
        "rewards": recorded.rewards,
        "terminals": recorded.terminated,
        "timeouts": recorded.truncated,
        "actions": actions,
        "observations": np.stack([recorded.values * 2, recorded.values], axis=1),
        "next_observations": np.stack([recorded.next_values * 2, recorded.values], axis=1),
        "infos/qpos": actions,
        "metadata/algorithm": np.bytes_("SAC"),
    }
    with h5py.File(path, "w") as file:
        for name, array in {**arrays, **changed}.items():
            if array is not None:
                file[name] = array
    return path


def assert_results(path, answer):
    got = pq.read_table(path)
    assert got.column_names == ["advantages", "returns"]
    assert_same_bits(got, answer)


@pytest.mark.parametrize("rows", [40, 1000, 10**6])
def test_same_bits_with_a_critic(tmp_path, recorded, rows):
    source = write(tmp_path / "hopper.hdf5", recorded)
    before = source.read_bytes()
    report = compute(source, values=critic, memory=limit(rows), progress=False)
    assert_results(tmp_path / "hopper.advantages.parquet", recorded.ended)
    assert (report.steps, report.episodes) == (len(recorded.rewards), len(recorded.first))
    assert source.read_bytes() == before


def test_same_bits_in_slices(tmp_path, recorded, monkeypatch):
    monkeypatch.setattr("fastgae.data.pieces.SLICE", 128)
    compute(write(tmp_path / "a.hdf5", recorded), tmp_path / "out.parquet", values=critic, progress=False)
    assert_results(tmp_path / "out.parquet", recorded.ended)


def test_values_may_be_stored_beside_the_rewards(tmp_path, recorded):
    nothing = np.zeros(len(recorded.rewards), bool)
    source = write(tmp_path / "a.h5", recorded, values=recorded.values, terminals=recorded.last, timeouts=nothing)
    compute(source, tmp_path / "out.parquet", progress=False)
    assert_results(
        tmp_path / "out.parquet", fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    )


FAULTS = {
    "no values": ({}, None, r"no column 'values' for values; there are actions, .* or a critic"),
    "no next observations": (
        {"next_observations": None},
        critic,
        r"a.hdf5: row \d+: the episode is truncated, and there is no value of the state after it",
    ),
    "no rewards": ({"rewards": None}, critic, "there is no column 'rewards' for rewards; there are actions, "),
    "a number": ({"rewards": 1.0}, critic, r"a.hdf5: rewards is not an array with one number for each step"),
    "lengths": ({"terminals": np.zeros(5)}, critic, "nothing says which episodes ended for good"),
    "flag 2": ({"timeouts": np.full(3000, 2, np.uint8)}, critic, r"a.hdf5: row 0: truncated is 2; expected 0 or 1"),
    "NaN": ({"rewards": np.where(np.arange(3000) == 77, np.nan, 1)}, critic, r"a.hdf5: row 77: rewards is NaN"),
    "object": ({"rewards": np.array([b"1"] * 3000, object)}, critic, "there is no column 'rewards' for rewards"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files(tmp_path, recorded, fault):
    changed, values, message = FAULTS[fault]
    source = write(tmp_path / "a.hdf5", recorded, **changed)
    with pytest.raises(DataError, match=message):
        compute(source, values="values" if values is None else values, progress=False)
    assert list(tmp_path.iterdir()) == [source]
