"""Arrays in .npz and .npy files: the same bits as one call of fastgae.gae on all of them, and nothing is unpickled."""

import pickle

import numpy as np
import pytest

import fastgae
from fastgae.data import DataError, compute
from fastgae.data.rows import Rows

from .recorded import ROWS, limit, put, read_arrays

T, N = 120, 7
FLAT = ("rewards", "values", "next_values", "terminated", "truncated")


def arrays(recorded, *names, **changed):
    return {**{name: getattr(recorded, name) for name in names or FLAT}, **changed}


def assert_same(path, answer):
    got = read_arrays(path)
    for name, expected in answer._asdict().items():
        assert got[name].dtype == expected.dtype
        assert got[name].shape == expected.shape
        assert got[name].tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("slice_rows", [1000, 65_536])
def test_episode_ends(tmp_path, recorded, monkeypatch, slice_rows):
    monkeypatch.setattr("fastgae.data.stored.SLICE", slice_rows)
    ends = np.append(recorded.first[1:], ROWS)
    np.savez(tmp_path / "a.npz", **arrays(recorded, "rewards", "values", episode_ends=ends))
    compute(tmp_path / "a.npz", ends="terminated", progress=False)
    answer = fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    assert_same(tmp_path / "a.advantages.parquet", answer)
    got = read_arrays(tmp_path / "a.advantages.parquet")
    assert np.array_equal(got["episode"], recorded.episode)
    assert np.array_equal(got["step"], recorded.step)


def test_the_sidecar_of_a_folder_lies_beside_it(tmp_path, recorded):
    folder = tmp_path / "run.1"
    folder.mkdir()
    for each, array in arrays(recorded).items():
        np.save(folder / f"{each}.npy", array)
    compute(folder, progress=False)
    assert_same(tmp_path / "run.1.advantages.parquet", recorded.result)


@pytest.fixture(params=[np.float32, np.float64])
def grid(request):
    """Return a time-major rollout of N envs."""
    rng = np.random.default_rng(5)
    rewards, values, next_values = rng.normal(size=(3, T, N)).astype(request.param)
    terminated, truncated = rng.random((2, T, N)) < 0.05
    return {
        "rewards": rewards,
        "values": values,
        "next_values": next_values,
        "terminated": terminated,
        "truncated": truncated & ~terminated,
    }


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 11, 10**6])
def test_time_major(tmp_path, grid, layout, rows):
    np.savez(tmp_path / "a.npz", **{name: LAYOUTS[layout](array) for name, array in grid.items()})
    report = compute(tmp_path / "a.npz", memory=limit(rows * N), progress=False)
    assert_same(tmp_path / "a.advantages.parquet", fastgae.gae(**grid))
    ends = grid["terminated"] | grid["truncated"]
    ends[-1] = True
    assert (report.steps, report.episodes) == (T * N, np.count_nonzero(ends))


@pytest.mark.parametrize("rows", [13, 10**6])
def test_time_major_with_one_more_row_of_values(tmp_path, grid, rows):
    values = np.concatenate([grid["values"], grid["next_values"][-1:]])
    np.savez(tmp_path / "a.npz", rewards=grid["rewards"], values=values, terminated=grid["terminated"])
    compute(tmp_path / "a.npz", memory=limit(rows * N), progress=False)
    assert_same(tmp_path / "a.advantages.parquet", fastgae.gae(grid["rewards"], values, grid["terminated"]))


def test_memory_counts_the_envs(tmp_path, grid, monkeypatch):
    most, kept = [], Rows.backwards

    def backwards(self, start, stop, columns, rows, folder):
        most.append(rows)
        return kept(self, start, stop, columns, rows, folder)

    monkeypatch.setattr(Rows, "backwards", backwards)
    np.savez(tmp_path / "a.npz", **grid)
    compute(tmp_path / "a.npz", memory=limit(11 * N), progress=False)
    assert set(most) == {11}


def test_time_major_normalized(tmp_path, grid):
    np.savez(tmp_path / "a.npz", **grid)
    results = []
    for rows in (10, 10**6):
        compute(
            tmp_path / "a.npz", tmp_path / f"{rows}.arrow", normalize="global", memory=limit(rows * N), progress=False
        )
        results.append(read_arrays(tmp_path / f"{rows}.arrow")["advantages"])
    advantages = fastgae.gae(**grid).advantages
    assert results[0].tobytes() == results[1].tobytes() == fastgae.moments(advantages).normalize(advantages).tobytes()


class Opened:
    """Unpickled, it would leave a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_is_unpickled(tmp_path, recorded):
    trap = np.array([Opened(tmp_path / "trapped")], object)
    np.savez(tmp_path / "a.npz", **arrays(recorded, rewards=trap))
    with pytest.raises(DataError, match=r"a.npz cannot be read: rewards must hold numbers or bool, got dtype object"):
        compute(tmp_path / "a.npz", progress=False)
    (tmp_path / "run").mkdir()
    np.save(tmp_path / "run" / "rewards.npy", trap)
    with pytest.raises(DataError, match=r"rewards.npy cannot be read: Array can't be memory-mapped: Python objects"):
        compute(tmp_path / "run", progress=False)
    (tmp_path / "run" / "rewards.npy").write_bytes(pickle.dumps(Opened(tmp_path / "trapped")))
    with pytest.raises(DataError, match=r"rewards.npy cannot be read: it does not begin as a .npy file does"):
        compute(tmp_path / "run", progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "run"]


FAULTS = {
    "NaN": ("rewards", put((7, 3), np.nan), r"a.npz: row 7: rewards is NaN in env 3"),
    "flag 2": ("terminated", put((9, 1), 2), r"a.npz: row 9: terminated is 2.0; expected 0 or 1 in env 1"),
    "no V'": ("next_values", None, r"a.npz: row \d+: the episode is truncated, and there is no value .*every episode"),
    "shape": ("values", lambda array: array[:, :3], r"a row of values has the shape \(3,\), but a row of rewards has"),
    "length": ("values", lambda array: array[:50], "there is no column 'values' for values; there are rewards, next"),
    "axes": ("rewards", lambda array: array[:, :, None], "the column of rewards holds .*; expected float32"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_arrays(tmp_path, grid, fault):
    name, change, message = FAULTS[fault]
    changed = grid | {name: change(grid[name])} if change else {each: grid[each] for each in grid if each != name}
    np.savez(tmp_path / "a.npz", **changed)
    with pytest.raises(DataError, match=message):
        compute(tmp_path / "a.npz", progress=False)


@pytest.mark.parametrize("ends", [[5, 4, ROWS], [5, ROWS + 1], [0, ROWS], [], [5.0, ROWS]])
def test_bad_episode_ends(tmp_path, recorded, ends):
    np.savez(tmp_path / "a.npz", **arrays(recorded, episode_ends=np.array(ends)))
    with pytest.raises(DataError, match=f"a.npz: episode_ends must be integers that rise to {ROWS}"):
        compute(tmp_path / "a.npz", progress=False)
