"""What is read, where it lies and what is asked for, together."""

import numpy as np
import pytest

from fastgae.data import compute

from .recorded import ROWS, assert_same_bits, computed, limit, names, read, refused, write

TEXT = (".csv", ".jsonl")  # whose numbers are float64
SUFFIXES = ((".arrow", ".csv"), (".stream", ".jsonl"), (".csv", ".stream"), (".jsonl", ".arrow"))
RUN = {"memory": limit(500)}


@pytest.fixture
def memory(tmp_path, tmp_path_factory, monkeypatch):
    """Return a folder of fsspec's memory. Other runs of this test have unfinished results of the same names."""
    upath = pytest.importorskip("upath")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
    folder = upath.UPath(f"memory://{tmp_path.name}")
    folder.mkdir()
    yield folder
    folder.fs.rm(folder.path, recursive=True)


def test_every_format_behind_urls(tmp_path, memory, recorded):
    """As source and as file of values, in any order, with labels beside all columns of the source."""
    rows, out = recorded.table(), tmp_path / "out.parquet"
    values = recorded.table("episode", "step", "values").take(np.random.default_rng(0).permutation(ROWS))
    for suffix, beside in SUFFIXES:
        for path, table in ((tmp_path / f"rows{suffix}", rows), (tmp_path / f"values{beside}", values)):
            (memory / path.name).write_bytes(write(table, path, 170).read_bytes())
        results = []
        for folder, into in ((tmp_path, out), (memory, memory / "there.parquet")):
            options = {"values": str(folder / f"values{beside}"), "label_quantile": 0.5, "overwrite": True, **RUN}
            compute(folder / f"rows{suffix}", into=into, progress=False, **options)
            out.write_bytes(into.read_bytes())
            results.append(got := read(out))
        assert results[0].equals(results[1]), suffix
        assert got.column_names == [*rows.column_names, "advantages", "returns", "positive"]
        if suffix not in TEXT and beside not in TEXT:
            assert_same_bits(got, recorded.result)


def test_tables_in_memory(tmp_path, memory, recorded):
    """Values of a file, labels and a copy of all columns."""
    rows, copy = recorded.table(), tmp_path / "copy.parquet"
    values = recorded.table("episode", "step", "values").take(np.arange(ROWS)[::-1])
    options = {"values": write(values, tmp_path / "values.stream", 100), "label_quantile": 0.5, "progress": False}
    results = compute(rows, **options, **RUN)
    assert results.column_names == ["episode", "step", "advantages", "returns", "positive"]
    for into in (copy, memory / "copy.parquet"):
        for _ in range(2):
            report = compute(rows, into=into, overwrite=True, **options, **RUN)
        copy.write_bytes(into.read_bytes())
        for table in (rows, results):
            assert read(copy).select(table.column_names).to_pydict() == table.to_pydict()
        assert np.array_equal(results["advantages"].to_numpy() > report.threshold, results["positive"])
    assert names(tmp_path) == ["copy.parquet", "values.stream"]


def test_files_that_count_from_0(tmp_path, memory, recorded):
    """Streams whose names begin again in every file, here and behind a URL."""
    rows, out = recorded.table(), tmp_path / "out.parquet"
    for number in range(3):
        path = write(rows.slice(0, 1000 * (number + 1)), tmp_path / "a.stream", 130)
        for folder in (tmp_path / "runs" / f"w={number}", memory / "runs" / f"w={number}"):
            folder.mkdir(parents=True)
            (folder / "a").write_bytes(path.read_bytes())
    for source in (tmp_path / "runs", memory / "runs", [memory / "runs" / f"w={number}" for number in range(3)]):
        message = r"step \d+ is followed by step \d+: .*several files, pass episode_is=.file."
        refused(message, source, out, overwrite=True, **RUN)
        got = computed(source, out, episode_is="file", **RUN)
        assert got["file"].unique().to_pylist() == ["w=0/a", "w=1/a", "w=2/a"]
    assert_same_bits(got.slice(3000), recorded.result)
