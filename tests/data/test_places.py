"""Which files a path stands for: by content, not by suffix; no hidden ones; none of a table that has deleted rows."""

import bz2
import gzip
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import compute
from fastgae.data.errors import DataError
from fastgae.data.files import data_files

from .recorded import NEXT, ROLES, computed, limit, names, read, refused, write


def assert_results(got, few):
    assert np.allclose(got["advantages"], few.result.advantages)  # text has no float32


def steps(source, **options):
    return compute(source, overwrite=True, progress=False, **options).steps


def test_files_are_known_by_content(tmp_path, few):
    np.save(tmp_path / "v", few.values)
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
        stem = name if name in ("c", "d.dat", "f") else name.partition(".")[0]
        assert_known(source, tmp_path / f"{stem}.advantages.parquet", few)
        for values in (tmp_path / "v.npy", source):
            assert_results(computed(source, tmp_path / "out.parquet", values=str(values), **NEXT), few)
    h5py = pytest.importorskip("h5py")
    arrays = few.arrays(*ROLES)
    with h5py.File(tmp_path / "hdf5", "w") as file:
        file.update(arrays)
    with (tmp_path / "npz").open("wb") as file:
        np.savez(file, **arrays)
    for name in ("hdf5", "npz"):
        assert_known(tmp_path / name, tmp_path / f"{name}.advantages.parquet", few)


def assert_known(source, out, few):
    assert compute(source, progress=False).file == str(out)
    assert_results(read(out), few)


def test_files_of_no_known_kind(tmp_path, few):
    (tmp_path / "a.csv").write_text("episode,rewards\n0,1\n")
    (tmp_path / "b").write_text("{}")
    (tmp_path / "c.jsonl").write_text("{")
    os.mkfifo(tmp_path / "d.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    stream = write(few.table(), tmp_path / "a.stream", 60).rename(tmp_path / "stream.arrow")
    stream.write_bytes(stream.read_bytes()[:-8])  # as a killed writer leaves it: whole batches, and no end
    packed = {"gz": gzip.compress(b"rewards"), "bz2": bz2.compress(b"rewards"), "lz4": b'\x04"M\x18', "zip": b"PK\3\4"}
    for folder in ("folder", "tables", "empty", "saved", *packed):
        (tmp_path / folder).mkdir()
    for suffix, content in packed.items():
        (tmp_path / suffix / "a.csv").write_text("rewards,values\n0,1\n")
        (tmp_path / suffix / f"b.csv.{suffix}").write_bytes(content)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    os.mkfifo(tmp_path / "folder" / "e.parquet")
    (tmp_path / "tables" / "info.json").write_text("{}")
    write(few.table(), tmp_path / "right.parquet", 60)
    for given, values, message in (
        ("a.csv", "values", r"a\.csv: there is no column 'values' for values; there are episode, rewards"),
        ("b", "values", "b is of no known format: Parquet, .*Delta$"),
        ("c.jsonl", "values", r"c\.jsonl cannot be read: .*JSON"),
        ("d.parquet", "values", r"d\.parquet is not a file"),
        ("folder", "values", r"e\.parquet is not a file"),
        ("empty", "values", "empty holds no file of a known format"),
        ("gz", "values", r"b\.csv\.gz is compressed with gzip: decompress it first"),
        ("bz2", "values", r"b\.csv\.bz2 is compressed with bzip2: decompress it first"),
        ("lz4", "values", r"b\.csv\.lz4 is compressed with LZ4: decompress it first"),
        ("zip", "values", r"b\.csv\.zip is a zip archive, but not of NumPy's arrays: .* or decompress text"),
        ("saved", "values", "saved holds the splits train, test: pass the folder of one"),
        ("nothing.parquet", "values", r"nothing\.parquet' does not exist"),
        ("broken.parquet", "values", r"broken\.parquet cannot be read"),
        ("stream.arrow", "values", r"stream\.arrow cannot be read: this Arrow stream has no end; it was not"),
        ("tables", "values", "tables holds no file of a known format: .*Minari dataset$"),
        ("right.parquet", str(tmp_path / "d.parquet"), r"d\.parquet is not a file"),
        ("right.parquet", str(tmp_path / "a.csv"), r"a\.csv has no column 'values'"),
    ):
        refused(message, tmp_path / given, values=values)
    refused("source 'simplecache::s3://bucket/a' is a chain of URLs: pass the last", "simplecache::s3://bucket/a")
    assert steps(tmp_path / "right.parquet") == 60


def test_text_whose_first_rows_are_of_another_type(tmp_path):
    """A look at the first rows would take rewards for integers, and names for numbers."""
    numbers, names = [0.0] * 30_001, ["0.5"] * 30_000 + ["word"]
    ends = [False] * 30_000 + [True]
    rows = pa.table({"rewards": [0] * 30_000 + [0.5], "values": numbers, "terminated": ends, "episode": names})
    for suffix in (".csv", ".jsonl"):
        source, given = tmp_path / f"a{suffix}", {"columns": {"episode": None}, "gamma": 1.0, "gae_lambda": 1.0}
        content = write(rows, source, 1).read_text()
        source.write_text(content.replace(": 0.0, ", ": 0, ").replace("\n0.0,", "\n0,"))
        got = computed(source, tmp_path / "out.arrow", **given)
        assert set(got["returns"].to_pylist()) == {0.5}
        assert steps(source, ends="terminated") == 30_001


def test_hidden_files_are_no_data(tmp_path, few, monkeypatch):
    rows, runs = few.table(), tmp_path / "runs"
    for name in ("_temporary/0/b.parquet", "_a.parquet", "._a.parquet", ".cache/a.parquet", "run/_c.parquet"):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        write(rows, runs / name, 60)
    write(rows[:40], runs / "run" / "part-0", 40)
    write(rows[40:], runs / "run" / "part-1", 20).rename(runs / "run" / "part-1.csv")  # its first bytes say Parquet
    (runs / "_SUCCESS").touch()
    (runs / "README.md").write_text("# Runs")
    (runs / "progress.csv").write_text("loss\n1.0\n")  # text beside data is a log
    (runs / "old.csv.gz").write_bytes(gzip.compress(b"loss\n1.0\n"))
    for pattern in ("runs", "runs/**/*part*", "r*/r*/*"):
        assert_results(computed(str(tmp_path / pattern), tmp_path / "out.parquet"), few)
    assert_results(computed([runs / "run", runs], tmp_path / "out.parquet"), few)  # a file is read once
    for asked in ("runs/_a.parquet", "runs/_*.parquet", "runs/_temporary"):
        assert len(computed(tmp_path / asked, tmp_path / "out.parquet")) == 60
    refused(r"does not exist", runs / "run" / "*_c.parquet")
    monkeypatch.chdir(runs)
    assert compute(".", progress=False).steps == len(read(tmp_path / "runs.advantages.parquet")) == 60


def test_several_links_to_a_folder(tmp_path, few, monkeypatch):
    """The first name counts, in whatever order the disk lists them."""
    (tmp_path / "runs" / "b").mkdir(parents=True)
    write(few.table(*ROLES), tmp_path / "runs" / "b" / "data.parquet", 60)
    for name in ("a", "c"):
        (tmp_path / "runs" / name).symlink_to("b")
    walk = os.walk

    def backwards(*given, **how):
        for at, folders, files in walk(*given, **how):
            folders.sort(reverse=True)
            yield at, folders, files

    monkeypatch.setattr(os, "walk", backwards)
    assert data_files(tmp_path / "runs") == [tmp_path / "runs" / "a" / "data.parquet"]


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
    refused("locked cannot be read: Permission denied", tmp_path / "runs")
    monkeypatch.setattr(Path, "is_file", Mock(side_effect=PermissionError(13, "Permission denied", "info.json")))
    refused("runs cannot be read: Permission denied", tmp_path / "runs")


def test_hidden_files_of_other_formats(tmp_path, few):
    folder, data = few.save(tmp_path / "arrays", *ROLES), tmp_path / "minari" / "data"
    (folder / "._rewards.npy").write_bytes(b"\0\5\26\7, as macOS writes beside every file of other systems")
    assert steps(folder) == 60
    for number in ("2", "10"):
        (data / number).mkdir(parents=True)
        episode = {"rewards": [1.0, 2.0, 0.0], "values": [0.0] * 3, "terminations": [False, True, True]}
        write(pa.table(episode), data / number / "part-0.parquet", 60)
        (data / number / "._part-0.parquet").write_bytes(b"\0\5\26\7")
    (data / "metadata.json").write_text('{"data_format": "parquet"}')
    assert steps(tmp_path / "minari") == 4
    assert read(tmp_path / "minari" / "advantages.parquet")["episode_id"].to_pylist() == [2, 2, 10, 10]


LOGGED = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/00000-0.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
}


@pytest.mark.parametrize("kind", LOGGED)
def test_tables_that_keep_deleted_rows(tmp_path, few, kind, monkeypatch):
    folder, out = tmp_path / "runs" / "table", tmp_path / "out.parquet"
    (folder / LOGGED[kind]).parent.mkdir(parents=True)
    (folder / LOGGED[kind]).write_text("{}")
    file = write(few.table(), folder / "part-0.parquet", 60)
    for source in (folder.parent, file, str(file.parent / "*.parquet"), *([] if kind == "Delta" else [folder])):
        refused(rf"table is a {kind} table, whose files also hold rows that were deleted", source, out)
    if kind == "Delta":
        monkeypatch.setitem(sys.modules, "deltalake", None)
        needed = "needs deltalake, which is not installed: run pip install deltalake$"
        refused(rf"table, whose files also hold .* {needed}", folder, out, error=ModuleNotFoundError)
    assert names(tmp_path) == ["runs"]


def test_a_delta_table_without_its_deleted_rows(tmp_path, few):
    deltalake = pytest.importorskip("deltalake")
    folder, kept = tmp_path / "table", few.step >= 3
    deltalake.write_deltalake(folder, few.table())
    deltalake.DeltaTable(folder).delete("step < 3")
    for memory in (limit(7), "1GB"):
        got = computed(folder, tmp_path / "out.parquet", memory=memory)
        assert np.array_equal(got["advantages"], few.result.advantages[kept])
    for file in (folder / "_delta_log").glob("*.json"):
        file.write_text("{}")
    refused(r"table cannot be read by deltalake: ", folder)
    vectors = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(tmp_path / "a", few.table(), configuration=vectors)
    refused(r"a cannot be read by deltalake: .*'deletionVectors'.* not yet supported", tmp_path / "a")


@pytest.mark.parametrize("name", ["source", "out", "values"])
def test_an_empty_path_is_not_the_folder_of_the_process(name, tmp_path, monkeypatch, few):
    (folder := tmp_path / "here").mkdir()
    monkeypatch.chdir(folder)
    write(few.table(*ROLES), folder / "data.parquet", 60)
    with pytest.raises(DataError, match=f"^{name} is empty: expected a path"):
        compute(**{"source": folder / "data.parquet", name: ""})
    assert [*tmp_path.iterdir()] == [folder]


def test_the_folder_of_the_process_is_gone(tmp_path, monkeypatch, few):
    source = write(few.table(*ROLES), tmp_path / "data.parquet", 60)
    monkeypatch.setattr(os, "getcwd", Mock(side_effect=FileNotFoundError))
    for name, given in (("source", {"source": "a.parquet"}), ("out", {"out": "a.parquet"})):
        with pytest.raises(DataError, match=rf"^{name} 'a\.parquet': the current folder is gone"):
            compute(**{"source": source, **given})
    assert compute(source).steps == 60


def test_without_stderr_there_is_no_progress_bar(tmp_path, monkeypatch, few):
    source = write(few.table(*ROLES), tmp_path / "data.parquet", 60)
    monkeypatch.setattr(sys, "stderr", None)
    assert compute(source).steps == 60
