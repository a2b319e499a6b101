"""D4RL's flat arrays in HDF5, where flags alone end the episodes."""

import numpy as np
import pyarrow.parquet as pq
import pytest

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


FAULTS = {
    "no next observations": (
        {"next_observations": None},
        critic,
        r"a.hdf5: row \d+: the episode is truncated, and there is no value of the state after it",
    ),
    "no rewards": ({"rewards": None}, critic, "there is no column 'rewards' for rewards; there are actions, "),
    "a number": ({"rewards": 1.0}, critic, r"a.hdf5: rewards is not an array with one number for each step"),
    "lengths": ({"terminals": np.zeros(5)}, critic, "nothing says which episodes ended for good"),
    "object": ({"rewards": np.array([b"1"] * 3000, object)}, critic, "there is no column 'rewards' for rewards"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files(tmp_path, recorded, fault):
    changed, values, message = FAULTS[fault]
    source = write(tmp_path / "a.hdf5", recorded, **changed)
    with pytest.raises(DataError, match=message):
        compute(source, values="values" if values is None else values, progress=False)
    assert list(tmp_path.iterdir()) == [source]
