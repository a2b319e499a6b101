"""Which files a path stands for: by content, not by suffix; no hidden ones; none of a table that has deleted rows."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

import fastgae.data
from fastgae.data import DataError

from .recorded import Recorded, read, write


@pytest.fixture(scope="module")
def few():
    return Recorded(rows=60)


def compute(source, **options):
    return fastgae.data.compute(source, progress=False, **options)


def assert_results(path, few):
    assert np.array_equal(read(path)["advantages"], few.result.advantages)


def test_files_are_known_by_content(tmp_path, few):
    for name, kind in (
        ("a.pq", "parquet"),
        ("b.PARQUET", "parquet"),
        ("c", "parquet"),
        ("d.dat", "arrow"),
        ("e.arrow", "parquet"),
    ):
        source = write(few.table(), tmp_path / f"a.{kind}", 7).rename(tmp_path / name)
        report = compute(source)
        stem = name if name in ("c", "d.dat") else name.partition(".")[0]
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
    for name, suffix in (("hdf5", ".parquet"), ("npz", ".npz")):
        out = compute(tmp_path / name).file
        assert out == str(tmp_path / f"{name}.advantages{suffix}")
    assert np.array_equal(np.load(out)["advantages"], few.result.advantages)
    assert_results(tmp_path / "hdf5.advantages.parquet", few)


def test_files_of_no_known_kind(tmp_path, few):
    (tmp_path / "a.csv").write_text("episode,rewards\n0,1\n")
    (tmp_path / "b").write_text("{}")
    (tmp_path / "c.jsonl").write_text("{}")
    os.mkfifo(tmp_path / "d.parquet")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "e.parquet")
    (tmp_path / "tables").mkdir()
    shutil.copy(tmp_path / "a.csv", tmp_path / "tables")
    source = write(few.table(), tmp_path / "right.parquet", 60)
    for given, values, message in (
        ("a.csv", "values", r"a\.csv is of no known format: Parquet, .*; duckdb converts CSV and JSON: duckdb\.sql"),
        ("b", "values", "b is of no known format"),
        ("c.jsonl", "values", r"c\.jsonl is of no known format"),
        ("d.parquet", "values", r"d\.parquet is not a file"),
        ("folder", "values", r"e\.parquet is not a file"),
        ("tables", "values", r"tables holds no file of a known format: .*; duckdb converts CSV"),
        ("right.parquet", str(tmp_path / "d.parquet"), r"d\.parquet is not a file"),
        ("right.parquet", str(tmp_path / "a.csv"), r"no column '.*a\.csv' for values"),
    ):
        with pytest.raises(DataError, match=message):
            compute(tmp_path / given, values=values)
    assert fastgae.data.compute(source, progress=False).steps == 60


def test_duckdb_converts_as_the_error_says(tmp_path, few, monkeypatch):
    import duckdb

    from fastgae.data.kinds import CONVERT

    duckdb.from_arrow(few.table()).write_csv(str(tmp_path / "a.csv"))
    monkeypatch.chdir(tmp_path)
    exec(CONVERT.partition(": ")[2])  # the statement in the error
    assert np.allclose(read(tmp_path / "a.parquet")["rewards"], few.rewards)


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


def delta(folder, table):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(folder, table)
    deltalake.DeltaTable(folder).delete("episode = 0")


def iceberg(folder, table):
    catalog = pytest.importorskip("pyiceberg.catalog.sql")
    made = catalog.SqlCatalog("a", uri="sqlite://", warehouse=f"file://{folder.parent}")
    made.create_namespace("n")
    kept = made.create_table("n.t", schema=table.schema, location=f"file://{folder}")
    kept.append(table)
    kept.delete("episode = 0")


def laid_out(*names):
    def write_files(folder, table):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
        write(table, folder / "part-0.parquet", 60)

    return write_files


LOGGED = {
    "Delta": (delta, laid_out("_delta_log/00000000000000000000.json")),
    "Iceberg": (iceberg, laid_out("metadata/00000-0.metadata.json")),
    "Hudi": (laid_out(".hoodie/hoodie.properties"),),
}


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind, made in LOGGED.items() for number in range(len(made))]
)
def test_tables_that_keep_deleted_rows(tmp_path, few, kind, number):
    folder = tmp_path / "runs" / "table"
    LOGGED[kind][number](folder, few.table())
    file = next(folder.rglob("*.parquet"))
    for source in (folder, folder.parent, file, str(file.parent / "*.parquet")):
        with pytest.raises(DataError, match=rf"table is a {kind} table, whose files also hold rows that were deleted"):
            fastgae.data.compute(source, tmp_path / "out.parquet", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
