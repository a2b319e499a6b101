"""``episode_is="file"``: the file of a row, with the folders around it, is a part of the name of its episode."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute

from .recorded import assert_same_bits, limit, read, write

quiet = {"progress": False, "episode_is": "file"}
NAMES = ("rewards", "values", "next_values", "terminated", "truncated")


@pytest.fixture
def parts(recorded):
    """Return the rows of each episode."""
    return np.split(np.arange(len(recorded.rewards)), recorded.first[1:])


@pytest.mark.parametrize("suffix", [".parquet", ".stream", ".hdf5", ".npz"])
def test_one_episode_per_file(tmp_path, recorded, parts, suffix):
    rows = recorded.table(*NAMES)
    for number, part in enumerate(parts):
        # Two files have the same name, and only the folder tells their episodes apart.
        file = tmp_path / "runs" / f"worker={number % 2}" / f"episode_{number // 2:02}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: rows[name].to_numpy()[part] for name in NAMES}
        if suffix == ".npz":
            np.savez(file, **arrays)
        elif suffix == ".hdf5":
            h5py = pytest.importorskip("h5py")
            with h5py.File(file, "w") as out:
                for name, array in arrays.items():
                    out[name] = array
                out["observations/images/top"] = np.zeros((len(part), 2, 2), np.uint8)
        else:
            write(pa.table(arrays), file, 77)
    half = (len(parts) + 1) // 2
    order = np.concatenate(parts[0::2] + parts[1::2])
    names = [f"worker={number // half}/episode_{number % half:02}{suffix}" for number in range(len(parts))]
    for memory in (limit(50), limit(500), "1GB"):
        compute(tmp_path / "runs", tmp_path / "out.arrow", memory=memory, **quiet)
        got = read(tmp_path / "out.arrow")
        assert got.column_names == ["file", "advantages", "returns"]
        assert_same_bits(got, recorded.result, order)
        assert list(dict.fromkeys(got["file"].to_pylist())) == names
        (tmp_path / "out.arrow").unlink()


@pytest.mark.parametrize("ordered", [True, False])
def test_names_that_begin_again(tmp_path, ordered):
    """3 x 5 rows stay 3 episodes of each name, with and without steps, and with rows in any order."""
    order = np.arange(5) if ordered else np.array([3, 0, 4, 1, 2])
    table = pa.table({"episode": [0, 0, 0, 1, 1], "rewards": [1.0] * 5, "values": [0.0] * 5})
    steps = table.append_column("step", pa.array([0, 1, 2, 0, 1])).take(order)
    expected = np.array([3.0, 2.0, 1.0, 2.0, 1.0])
    for rows, answer in ((table, expected), (steps, expected[order])):
        files = [write(rows, tmp_path / f"{number}.parquet", 2) for number in range(3)]
        for memory in (limit(2), "1GB"):
            report = compute(
                files, tmp_path / "out.arrow", ends="terminated", gamma=1.0, gae_lambda=1.0, memory=memory, **quiet
            )
            assert report.episodes == 6
            got = read(tmp_path / "out.arrow")
            assert got["advantages"].to_pylist() == [*answer] * 3
            assert got["file"].to_pylist() == [f"{number}.parquet" for number in range(3) for _ in range(5)]
            (tmp_path / "out.arrow").unlink()


def test_rollouts_of_several_envs(tmp_path):
    """An episode of an env ends with its file."""
    for number in range(2):
        ones = np.ones((3, 2))
        np.savez(
            tmp_path / f"{number}.npz",
            rewards=ones,
            values=0 * ones,
            next_values=0 * ones,
            terminated=0 * ones,
            truncated=0 * ones,
        )
    for memory in (limit(2), "1GB"):
        files = [tmp_path / "0.npz", tmp_path / "1.npz"]
        compute(files, tmp_path / "out.arrow", gamma=1.0, gae_lambda=1.0, memory=memory, **quiet)
        got = read(tmp_path / "out.arrow")["advantages"].combine_chunks().to_numpy_ndarray()
        assert np.array_equal(got, np.tile([3.0, 2.0, 1.0], 2)[:, None].repeat(2, 1))
        (tmp_path / "out.arrow").unlink()


def test_what_cannot_be(tmp_path, recorded):
    source = write(recorded.table(*NAMES), tmp_path / "a.parquet", 1000)
    compute(source, tmp_path / "out.parquet", **quiet)
    source = source.rename(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="exists already"):  # the names in it are others
        compute(source, tmp_path / "out.parquet", resume=True, **quiet)
    with pytest.raises(ValueError, match='episode_is must be "file" or None, got 5'):
        compute(source, episode_is=5)
    with pytest.raises(ValueError, match='episode_is="file" needs a source of files'):
        compute(recorded.table(), **quiet)
    table = recorded.table(*NAMES).append_column("file", pa.array(["x"] * len(recorded.rewards)))
    compute(write(table, tmp_path / "c.parquet", 1000), progress=False)
    assert read(tmp_path / "c.advantages.parquet").column_names == ["advantages", "returns"]
    with pytest.raises(DataError, match=r"c\.parquet has a column 'file' itself: pass columns=\{'file': 'file'\}"):
        compute(tmp_path / "c.parquet", **quiet)
    compute(tmp_path / "c.parquet", tmp_path / "d.parquet", columns={"file": "file"}, progress=False)
    assert read(tmp_path / "d.parquet")["file"].to_pylist() == ["x"] * len(recorded.rewards)
