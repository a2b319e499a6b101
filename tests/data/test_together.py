"""What is read, where it lies and what is asked for, together."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute

from .recorded import ROWS, assert_same_bits, limit, read, write

TEXT = (".csv", ".jsonl")  # whose numbers are float64
SUFFIXES = ((".arrow", ".csv"), (".stream", ".jsonl"), (".csv", ".stream"), (".jsonl", ".arrow"))
RUN = limit(500)


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
    order = np.random.default_rng(0).permutation(ROWS)
    rows, values = recorded.table(), recorded.table("episode", "step", "values").take(order)
    for suffix, beside in SUFFIXES:
        for path, table in ((tmp_path / f"rows{suffix}", rows), (tmp_path / f"values{beside}", values)):
            (memory / path.name).write_bytes(write(table, path, 170).read_bytes())
        results = []
        for folder, out in ((tmp_path, tmp_path / f"here{suffix}.parquet"), (memory, memory / "there.parquet")):
            options = {"values": str(folder / f"values{beside}"), "label_quantile": 0.5, "memory": RUN}
            compute(folder / f"rows{suffix}", into=out, overwrite=True, progress=False, **options)
            (tmp_path / "out.parquet").write_bytes(out.read_bytes())
            results.append(got := read(tmp_path / "out.parquet"))
        assert results[0].equals(results[1]), suffix
        assert got.column_names == [*rows.column_names, "advantages", "returns", "positive"]
        if suffix not in TEXT and beside not in TEXT:
            assert_same_bits(got, recorded.result)


def test_tables_in_memory(tmp_path, memory, recorded):
    """Values of a file, labels and a copy of all columns; and what only files can have."""
    rows = recorded.table()
    values = recorded.table("episode", "step", "values").take(np.arange(ROWS)[::-1])
    options = {"values": write(values, tmp_path / "values.stream", 100), "label_quantile": 0.5}
    results = compute(rows, memory=RUN, progress=False, **options)
    assert results.column_names == ["episode", "step", "advantages", "returns", "positive"]
    for out in (tmp_path / "copy.parquet", memory / "copy.parquet"):
        for _ in range(2):
            report = compute(rows, into=out, overwrite=True, memory=RUN, progress=False, **options)
        (tmp_path / "copy.parquet").write_bytes(out.read_bytes())
        got = read(tmp_path / "copy.parquet")
        for table in (rows, results):
            assert got.select(table.column_names).to_pydict() == table.to_pydict()
        assert np.count_nonzero(got["advantages"].to_numpy() > report.threshold) == np.count_nonzero(got["positive"])
    for name, given in {"resume": True, "episode_is": "file"}.items():
        for out in (None, tmp_path / "out.parquet"):
            with pytest.raises(ValueError, match=f"^{name}.* needs a source of files"):
                compute(rows, out, progress=False, **{name: given})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.parquet", "values.stream"]


def test_files_that_count_from_0(tmp_path, memory, recorded):
    """Streams whose names begin again in every file, here and behind a URL."""
    rows = recorded.table()
    out, options = tmp_path / "out.parquet", {"episode_is": "file", "memory": RUN, "progress": False}
    for number in range(3):
        path = write(rows.slice(0, 1000 * (number + 1)), tmp_path / "a.stream", 130)
        for folder in (tmp_path / "runs" / f"w={number}", memory / "runs" / f"w={number}"):
            folder.mkdir(parents=True)
            (folder / "a").write_bytes(path.read_bytes())
    for source in (tmp_path / "runs", memory / "runs", [memory / "runs" / f"w={number}" for number in range(3)]):
        with pytest.raises(DataError, match=r"step \d+ is followed by step \d+"):
            compute(source, out, overwrite=True, memory=RUN, progress=False)
        compute(source, out, overwrite=True, **options)
        assert read(out)["file"].unique().to_pylist() == ["w=0/a", "w=1/a", "w=2/a"]
    assert_same_bits(read(out).slice(3000), recorded.result)


def test_success_of_one_row_per_episode():
    lengths = [3, 1, 2]
    rows = pa.table({"ok": [[number == 1] * length for number, length in enumerate(lengths)]})
    results = compute(
        rows,
        rewards="ok:-1:10",
        estimator="discounted_returns",
        gamma=1.0,
        ends="terminated",
        progress=False,
    )
    assert results["returns"].to_pylist() == [-12, -11, -10, 0, -11, -10]
    assert results["episode"].to_pylist() == [0, 0, 0, 1, 2, 2]
