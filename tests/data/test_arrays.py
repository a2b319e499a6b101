"""Arrays in .npz and .npy files: the same bits as one call of fastgae.gae on all of them, and nothing is unpickled."""

import pickle

import numpy as np
import pytest

import fastgae
from fastgae.data import compute
from fastgae.data.rows import Rows

from .recorded import ROWS, computed, limit, names, put, read_arrays, refused

T, N = 120, 7
FLAT = ("rewards", "values", "next_values", "terminated", "truncated")


def arrays(recorded, *names, **changed):
    return {**{name: getattr(recorded, name) for name in names or FLAT}, **changed}


def assert_same(path, answer):
    got = read_arrays(path)
    for name, expected in answer._asdict().items():
        assert (got[name].dtype, got[name].shape) == (expected.dtype, expected.shape)
        assert got[name].tobytes() == expected.tobytes(), name
    path.unlink()


def test_episode_ends(tmp_path, recorded):
    ends = np.append(recorded.first[1:], ROWS)
    np.savez(tmp_path / "a.npz", **arrays(recorded, "rewards", "values", episode_ends=ends))
    got = computed(tmp_path / "a.npz", tmp_path / "out.parquet", ends="terminated")
    for key in ("episode", "step"):
        assert np.array_equal(got[key], getattr(recorded, key))
    for ends in ([5, 4, ROWS], [5, ROWS + 1], [0, ROWS], [], [5.0, ROWS]):
        np.savez(tmp_path / "b.npz", **arrays(recorded, episode_ends=np.array(ends)))
        refused(f"b.npz: episode_ends must be integers that rise to {ROWS}", tmp_path / "b.npz")


def test_the_sidecar_of_a_folder_lies_beside_it(tmp_path, recorded):
    (tmp_path / "run.1").mkdir()
    for each, array in arrays(recorded).items():
        np.save(tmp_path / "run.1" / f"{each}.npy", array)
    compute(tmp_path / "run.1", progress=False)
    assert_same(tmp_path / "run.1.advantages.parquet", recorded.result)


@pytest.fixture(params=[np.float32, np.float64])
def grid(request):
    """Return a time-major rollout of N envs."""
    rng = np.random.default_rng(5)
    rewards, values, next_values = rng.normal(size=(3, T, N)).astype(request.param)
    terminated, truncated = rng.random((2, T, N)) < 0.05
    flags = {"terminated": terminated, "truncated": truncated & ~terminated}
    return {"rewards": rewards, "values": values, "next_values": next_values, **flags}


def test_time_major(tmp_path, grid):
    ends, source, out = grid["terminated"] | grid["truncated"], tmp_path / "a.npz", tmp_path / "a.advantages.parquet"
    ends[-1] = True
    answer = fastgae.gae(**grid)
    np.savez(source, **grid)
    report = compute(source, normalize="global", memory=limit(11 * N), progress=False)
    assert (report.steps, report.episodes) == (T * N, np.count_nonzero(ends))
    assert_same(out, answer._replace(advantages=fastgae.moments(answer.advantages).normalize(answer.advantages)))
    values = np.concatenate([grid["values"], grid["next_values"][-1:]])  # one more row, in place of next values
    np.savez(source, rewards=grid["rewards"], values=values, terminated=grid["terminated"])
    for rows in (13, 10**6):
        compute(source, memory=limit(rows * N), progress=False)
        assert_same(out, fastgae.gae(grid["rewards"], values, grid["terminated"]))


def test_memory_counts_the_envs(tmp_path, grid, monkeypatch):
    most, kept = [], Rows.backwards
    monkeypatch.setattr(Rows, "backwards", lambda *given: most.append(given[4]) or kept(*given))
    np.savez(tmp_path / "a.npz", **grid)
    compute(tmp_path / "a.npz", memory=limit(11 * N), progress=False)
    assert set(most) == {11}


class Opened:
    """Unpickled, it would leave a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_is_unpickled(tmp_path, recorded):
    trap, run = np.array([Opened(tmp_path / "trapped")], object), tmp_path / "run"
    np.savez(tmp_path / "a.npz", **arrays(recorded, rewards=trap))
    refused(r"a.npz cannot be read: rewards must hold numbers or bool, got dtype object", tmp_path / "a.npz")
    run.mkdir()
    np.save(run / "rewards.npy", trap)
    refused(r"rewards.npy cannot be read: Array can't be memory-mapped: Python objects", run)
    (run / "rewards.npy").write_bytes(pickle.dumps(Opened(tmp_path / "trapped")))
    refused(r"rewards.npy cannot be read: it does not begin as a .npy file does", run)
    assert names(tmp_path) == ["a.npz", "run"]


FAULTS = {
    "NaN": ("rewards", put((7, 3), np.nan), r"a.npz: row 7: rewards is NaN in env 3"),
    "flag 2": ("terminated", put((9, 1), 2), r"a.npz: row 9: terminated is 2.0; expected 0 or 1 in env 1"),
    "no V'": ("next_values", None, r"a.npz: row \d+: the episode is truncated, and there is no value .*every episode"),
    "shape": ("values", lambda array: array[:, :3], r"a row of values has the shape \(3,\), but a row of rewards has"),
    "length": ("values", lambda array: array[:50], "there is no column 'values' for values; there are rewards, next"),
    "axes": ("rewards", lambda array: array[:, :, None], "the column of rewards holds .*; expected float32"),
}


def test_bad_arrays(tmp_path, grid):
    for name, change, message in FAULTS.values():
        changed = grid | {name: change(grid[name])} if change else {each: grid[each] for each in grid if each != name}
        np.savez(tmp_path / "a.npz", **changed)
        refused(message, tmp_path / "a.npz")
