"""``episode_is="file"``: the file of a row, with the folders around it, is a part of the name of its episode."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import compute

from .recorded import ROLES, computed, limit, names, read, refused, save, write

BY_FILE = {"episode_is": "file"}


def test_names_that_begin_again(tmp_path):
    """3 x 5 rows stay 3 episodes of each name, with and without steps, and with rows in any order."""
    table = pa.table({"episode": [0, 0, 0, 1, 1], "rewards": [1.0] * 5, "values": [0.0] * 5})
    steps = table.append_column("step", pa.array([0, 1, 2, 0, 1]))
    lists = pa.table({"rewards": [[1.0] * 3, [1.0] * 2], "values": [[0.0] * 3, [0.0] * 2]})
    expected, turned = np.array([3.0, 2.0, 1.0, 2.0, 1.0]), np.array([3, 0, 4, 1, 2])
    for rows, answer in (
        (table, expected),
        (steps, expected),
        (steps.take(turned), expected[turned]),
        (lists, expected),
    ):
        files = [write(rows, tmp_path / f"{number}.parquet", 1) for number in range(3)]
        for memory in (limit(2), "1GB"):
            how = {"ends": "terminated", "gamma": 1.0, "gae_lambda": 1.0, "memory": memory, **BY_FILE}
            got = computed(files, tmp_path / "out.arrow", **how)
            assert got["advantages"].to_pylist() == [*answer] * 3
            assert got["file"].to_pylist() == [f"{number}.parquet" for number in range(3) for _ in range(5)]


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_rollouts_of_several_envs(tmp_path, monkeypatch, suffix):
    """An episode of an env ends with its file, and does so anyway where the file says what follows it."""
    files, ones = [tmp_path / f"0{suffix}", tmp_path / f"1{suffix}"], np.ones((3, 2))
    flags = {"terminated": 0 * ones, "truncated": 0 * ones}
    flags["terminated"][2, 0] = 1
    behind, diagnose, diagnosed = {"last_values": ones[0]}, fastgae.diagnose, []
    monkeypatch.setattr(fastgae, "diagnose", lambda **rollout: diagnosed.append(rollout) or diagnose(**rollout))
    for last in ({"next_values": 0 * ones}, behind, behind | {"final_values": 9 * ones}):
        for file in files:
            save(file, rewards=ones, values=0 * ones, **last, **flags)
        expected = np.full(2, "last_values" in last) * [0, 1] + [[3.0], [2.0], [1.0]] * 2
        for memory, how in product((limit(2), "1GB"), (BY_FILE, {})[: len(last.keys() & behind) + 1]):
            got = computed(files, tmp_path / "out.arrow", gamma=1.0, gae_lambda=1.0, memory=memory, **how)
            assert np.array_equal(got["advantages"].combine_chunks().to_numpy_ndarray(), expected)
    assert diagnosed[-1]["truncated"].tolist() == ([[False, False]] * 2 + [[False, True]]) * 2
    ended = computed(files, tmp_path / "out.arrow", gamma=1.0, gae_lambda=1.0, ends="terminated")  # for good, and there
    assert ended["advantages"].to_pylist() == [[3, 3], [2, 2], [1, 1]] * 2
    for own, values in product(({}, {"values": 9 * ones}), (np.zeros(6), np.array([0, 0, 0, 5.0] * 2))):
        for file in files:  # values from elsewhere may have those behind the last steps; if not, all episodes must end
            save(file, rewards=ones, **own, **behind, terminated=flags["terminated"])
        np.save(tmp_path / "v.npy", np.stack([values, values], axis=1))
        more = {"gamma": 1.0, "gae_lambda": 1.0, "ends": None if len(values) == 8 else "terminated"}
        got = computed(files, tmp_path / "out.arrow", values=tmp_path / "v.npy", memory=limit(2), **more)
        assert got["advantages"].to_pylist() == [[3, 3 + values[3]], [2, 2 + values[3]], [1, 1 + values[3]]] * 2
    for number, file in enumerate(files):  # names and steps say that the episode goes on
        keys = {"episode": [7, 7, 7], "step": np.arange(3) + 3 * number, "terminated": [0, 0, number]}
        save(file, rewards=np.ones(3), values=np.zeros(3), last_values=5.0, **keys)
    got = computed(files, tmp_path / "out.arrow", gamma=1.0, gae_lambda=1.0)
    assert got["advantages"].to_pylist() == [6, 5, 4, 3, 2, 1]


def test_an_episode_that_goes_on_in_the_next_file(tmp_path):
    """It would be cut; but folders may name datasets whose episodes have the same names."""
    table = pa.table({"episode_index": [0, 0, 0, 0], "frame_index": [0, 1, 2, 3], "next.reward": [1.0] * 4})
    how = {"format": "lerobot", "ends": "terminated", "estimator": "discounted_returns", "gamma": 1.0}
    runs = [tmp_path / f"run={number}" for number in range(2)]
    for run in runs:
        (run / "data").mkdir(parents=True)
        for first in (0, 2):
            write(table[first : first + 2], run / "data" / f"{first}.parquet", 2)
    message = r"step 1, row 1: run=./data/2.parquet goes on with step 2 of the same .*columns={'env': 'run'}"
    for memory in (limit(1), limit(2), "1GB"):
        refused(message, runs, tmp_path / "out.parquet", memory=memory, **how, **BY_FILE)
    for memory in (limit(1), "1GB"):
        got = computed(runs, tmp_path / "out.parquet", memory=memory, columns={"env": "run"}, **how)
        assert got["returns"].to_pylist() == [4, 3, 2, 1] * 2
    files = [tmp_path / "0.arrow", tmp_path / "1.arrow"]
    for episode, step, flag in ((7, 2, "mask"), (0, 0, "mask"), (0, 2, "terminated"), (0, 2, "truncated")):
        for file, (name, first) in zip(files, ((0, 0), (episode, step)), strict=True):
            keys = {"episode": [name] * 2, "step": [first, first + 1]}
            write(pa.table({**keys, "rewards": [1.0] * 2, flag: [flag == "mask", True]}), file, 2)
        for memory in (limit(2), "1GB"):  # another name, another step, or a flag: the episode has ended
            more = {**how, "format": "table", "memory": memory, **BY_FILE}
            assert computed(files, tmp_path / "out.parquet", **more)["returns"].to_pylist() == [2, 1] * 2
    for source in (runs[0] / "data", runs[0] / "data" / "0.parquet"):  # where there is no folder meta
        compute(source, progress=False, **how)
    assert names(runs[0]) == ["data", "data.advantages.parquet"]


def test_what_cannot_be(tmp_path, recorded):
    lists = pa.table({name: [getattr(recorded, name).tolist()] for name in ROLES})
    for table in (recorded.table(*ROLES), lists):
        source = write(table, tmp_path / "a.parquet", 1000)
        compute(source, tmp_path / "out.parquet", overwrite=True, progress=False, **BY_FILE)
        source = source.rename(tmp_path / "b.parquet")  # the names in it are others now
        refused("exists already", source, tmp_path / "out.parquet", resume=True, **BY_FILE)
    refused('episode_is must be "file" or None, got 5', source, error=ValueError, episode_is=5)
    refused('episode_is="file" names files itself', source, error=ValueError, columns={"file": None}, **BY_FILE)
    refused('episode_is="file" needs a source of files', recorded.table(), error=ValueError, **BY_FILE)
    table = recorded.table(*ROLES, file=["x"] * len(recorded.rewards))
    source = write(table, tmp_path / "c.parquet", 1000)
    compute(source, progress=False)
    assert read(tmp_path / "c.advantages.parquet").column_names == ["advantages", "returns"]
    refused(r"c\.parquet has a column 'file' itself: pass columns=\{'file': 'file'\}", source, **BY_FILE)
    got = computed(source, tmp_path / "d.parquet", columns={"file": "file"})
    assert got["file"].to_pylist() == table["file"].to_pylist()
