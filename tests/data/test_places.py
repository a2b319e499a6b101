"""Which files a path stands for: by content, not by suffix; no hidden ones; none of a table that has deleted rows."""

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fastgae.data
from fastgae.data import DataError

from .recorded import Recorded, limit, read, write


@pytest.fixture(scope="module")
def few():
    return Recorded(rows=60)


def compute(source, **options):
    return fastgae.data.compute(source, progress=False, **options)


def assert_results(path, few):
    assert np.allclose(read(path)["advantages"], few.result.advantages)  # text has no float32


def test_files_are_known_by_content(tmp_path, few):
    for name, kind in (
        ("a.pq", "parquet"),
        ("b.PARQUET", "parquet"),
        ("c", "parquet"),
        ("d.dat", "arrow"),
        ("e.arrow", "parquet"),
        ("f", "stream"),
        ("[g*].CSV", "csv"),
        ("h.json", "jsonl"),
    ):
        source = write(few.table(), tmp_path / f"a.{kind}", 7).rename(tmp_path / name)
        report = compute(source)
        stem = name if name in ("c", "d.dat", "f") else name.partition(".")[0]
        assert report.file == str(tmp_path / f"{stem}.advantages.parquet")
        assert_results(tmp_path / f"{stem}.advantages.parquet", few)
        np.save(tmp_path / "v", few.values)
        for values in (tmp_path / "v.npy", source):
            out = tmp_path / f"{name}-{values.name}.parquet"
            fastgae.data.compute(source, out, values=str(values), progress=False)
            assert_results(out, few)
            out.unlink()


def test_arrays_are_known_by_content(tmp_path, few):
    h5py = pytest.importorskip("h5py")
    arrays = {name: getattr(few, name) for name in ("rewards", "values", "next_values", "terminated", "truncated")}
    with h5py.File(tmp_path / "hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    with (tmp_path / "npz").open("wb") as file:
        np.savez(file, **arrays)
    for name in ("hdf5", "npz"):
        assert compute(tmp_path / name).file == str(tmp_path / f"{name}.advantages.parquet")
        assert_results(tmp_path / f"{name}.advantages.parquet", few)


def test_files_of_no_known_kind(tmp_path, few):
    (tmp_path / "a.csv").write_text("episode,rewards\n0,1\n")
    (tmp_path / "b").write_text("{}")
    (tmp_path / "c.jsonl").write_text("{")
    os.mkfifo(tmp_path / "d.parquet")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "e.parquet")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "info.json").write_text("{}")
    source = write(few.table(), tmp_path / "right.parquet", 60)
    for given, values, message in (
        ("a.csv", "values", r"a\.csv: there is no column 'values' for values; there are episode, rewards"),
        ("b", "values", "b is of no known format: Parquet, .*Delta$"),
        ("c.jsonl", "values", r"c\.jsonl cannot be read: .*JSON"),
        ("d.parquet", "values", r"d\.parquet is not a file"),
        ("folder", "values", r"e\.parquet is not a file"),
        ("tables", "values", "tables holds no file of a known format: .*Minari dataset$"),
        ("right.parquet", str(tmp_path / "d.parquet"), r"d\.parquet is not a file"),
        ("right.parquet", str(tmp_path / "a.csv"), r"a\.csv has no column 'values'"),
    ):
        with pytest.raises(DataError, match=message):
            compute(tmp_path / given, values=values)
    assert fastgae.data.compute(source, progress=False).steps == 60


def test_text_whose_first_rows_are_integers(tmp_path):
    """A reward of 0 in every row but the last: a look at the first rows would take them for integers."""
    rewards = [0] * 30_000 + [0.5]
    rows = pa.table({"rewards": pa.array(rewards), "values": [0.0] * 30_001, "terminated": [False] * 30_000 + [True]})
    for suffix in (".csv", ".jsonl"):
        source = tmp_path / f"a{suffix}"
        content = write(rows, source, 1).read_text()
        source.write_text(content.replace(": 0.0, ", ": 0, ").replace("\n0.0,", "\n0,"))
        fastgae.data.compute(source, tmp_path / f"{suffix}.arrow", gamma=1.0, gae_lambda=1.0, progress=False)
        assert set(read(tmp_path / f"{suffix}.arrow")["returns"].to_pylist()) == {0.5}


def test_text_whose_first_rows_are_numbers(tmp_path):
    """A look at the first rows would take a column for numbers that ends with a word."""
    numbers, names = [0.5] * 30_001, ["0.5"] * 30_000 + ["word"]
    rows = pa.table({"episode": names, "rewards": numbers, "values": numbers})
    report = compute(write(rows, tmp_path / "a.csv", 1), ends="terminated")
    assert report.steps == 30_001


def test_text_beside_data_is_a_log(tmp_path, few):
    (tmp_path / "runs").mkdir()
    write(few.table(), tmp_path / "runs" / "a.parquet", 60)
    (tmp_path / "runs" / "progress.csv").write_text("loss\n1.0\n")
    assert compute(tmp_path / "runs").steps == 60


def test_hidden_files_are_no_data(tmp_path, few):
    rows = few.table()
    for name in ("_temporary/0/b.parquet", "_a.parquet", "._a.parquet", ".cache/a.parquet", "run/_c.parquet"):
        (tmp_path / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        write(rows, tmp_path / "runs" / name, 60)
    write(rows, tmp_path / "runs" / "run" / "part-0", 60)
    (tmp_path / "runs" / "_SUCCESS").touch()
    (tmp_path / "runs" / "README.md").write_text("# Runs")
    for number, pattern in enumerate(("runs", "runs/**/*part*", "r*/r*/*")):
        out = tmp_path / f"{number}.parquet"
        fastgae.data.compute(str(tmp_path / pattern), out, progress=False)
        assert_results(out, few)
    for number, asked in enumerate(("runs/_a.parquet", "runs/_*.parquet", "runs/_temporary")):
        assert fastgae.data.compute(tmp_path / asked, tmp_path / f"{number}.arrow", progress=False).steps == 60
    with pytest.raises(DataError, match=r"does not exist"):
        compute(tmp_path / "runs" / "run" / "*_c.parquet")


def test_a_folder_that_cannot_be_listed(tmp_path, few, monkeypatch):
    """Its files would be missing without a word."""
    (tmp_path / "runs" / "locked").mkdir(parents=True)
    write(few.table(), tmp_path / "runs" / "a.parquet", 60)

    def refusing(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return kept(path)

    kept = os.scandir
    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DataError, match="locked cannot be read: Permission denied"):
        compute(tmp_path / "runs")


def test_hidden_files_of_other_formats(tmp_path, few):
    folder = tmp_path / "arrays"
    folder.mkdir()
    for name in ("rewards", "values", "next_values", "terminated", "truncated"):
        np.save(folder / name, getattr(few, name))
    (folder / "._rewards.npy").write_bytes(b"\0\5\26\7, as macOS writes beside every file of other systems")
    assert compute(folder).steps == 60
    for number in range(2):
        (tmp_path / "minari" / "data" / f"{number}").mkdir(parents=True)
        episode = {"rewards": [1.0, 2.0, 0.0], "values": [0.0] * 3, "terminations": [False, True, True]}
        write(pa.table(episode), tmp_path / "minari" / "data" / f"{number}" / "part-0.parquet", 60)
        (tmp_path / "minari" / "data" / f"{number}" / "._part-0.parquet").write_bytes(b"\0\5\26\7")
    (tmp_path / "minari" / "data" / "metadata.json").write_text('{"data_format": "parquet"}')
    assert compute(tmp_path / "minari").steps == 4


def laid_out(*names):
    def write_files(folder, table):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
        write(table, folder / "part-0.parquet", 60)

    return write_files


LOGGED = {
    "Delta": (laid_out("_delta_log/00000000000000000000.json"), "deltalake"),
    "Iceberg": (laid_out("metadata/00000-0.metadata.json"), None),
    "Hudi": (laid_out(".hoodie/hoodie.properties"), None),
}


class Missing:
    def __init__(self, library):
        self.library = library

    def find_spec(self, name, path=None, target=None):
        if name == self.library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("kind", LOGGED)
def test_tables_that_keep_deleted_rows(tmp_path, few, kind, monkeypatch):
    folder = tmp_path / "runs" / "table"
    write_table, library = LOGGED[kind]
    write_table(folder, few.table())
    file = next(folder.rglob("*.parquet"))
    for source in (folder.parent, file, str(file.parent / "*.parquet"), *([folder] if library is None else [])):
        with pytest.raises(DataError, match=rf"table is a {kind} table, whose files also hold rows that were deleted"):
            fastgae.data.compute(source, tmp_path / "out.parquet", progress=False)
    if library is not None:
        for name in [name for name in sys.modules if name.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Missing(library), *sys.meta_path])
        message = (
            rf"table, whose files also hold .* needs {library}, which is not installed: run pip install {library}$"
        )
        with pytest.raises(ModuleNotFoundError, match=message):
            fastgae.data.compute(folder, tmp_path / "out.parquet", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_delta_table_without_its_deleted_rows(tmp_path, few):
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "table"
    deltalake.write_deltalake(folder, few.table())
    deltalake.DeltaTable(folder).delete("step < 3")
    kept = few.step >= 3
    for number, memory in enumerate((limit(7), "1GB")):
        report = fastgae.data.compute(folder, tmp_path / f"{number}.parquet", memory=memory, progress=False)
        got = read(Path(report.file))
        assert report.steps == kept.sum()
        assert np.array_equal(got["advantages"], few.result.advantages[kept])
    for file in (folder / "_delta_log").glob("*.json"):
        file.write_text("{}")
    with pytest.raises(DataError, match=r"table cannot be read by deltalake: "):
        compute(folder)


def test_deletion_vectors(tmp_path, few):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "a", few.table(), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(DataError, match=r"a cannot be read by deltalake: .*'deletionVectors'.* not yet supported"):
        compute(tmp_path / "a")
