"""What is read, where it lies and what is asked for, together."""

import numpy as np
import pytest

from fastgae.data import compute

from .recorded import ROWS, assert_same_bits, limit, read, write

SUFFIXES = (".parquet", ".arrow", ".stream", ".csv", ".jsonl")
RUN = limit(500)


@pytest.fixture
def memory(tmp_path):
    """Return a folder of fsspec's memory."""
    upath = pytest.importorskip("upath")
    folder = upath.UPath(f"memory://{tmp_path.name}")
    folder.mkdir()
    yield folder
    folder.fs.rm(folder.path, recursive=True)


def test_every_format_behind_urls(tmp_path, memory, recorded):
    """As source and as file of values, in any order, with labels beside all columns of the source."""
    order = np.random.default_rng(0).permutation(ROWS)
    rows, values = recorded.table(), recorded.table("episode", "step", "values").take(order)
    for suffix in SUFFIXES:
        for path, table in ((tmp_path / f"rows{suffix}", rows), (tmp_path / f"values{suffix}", values)):
            (memory / path.name).write_bytes(write(table, path, 170).read_bytes())
        results = []
        for folder, out in ((tmp_path, tmp_path / f"here{suffix}.parquet"), (memory, memory / "there.parquet")):
            options = {"values": str(folder / f"values{suffix}"), "label_quantile": 0.5, "memory": RUN}
            compute(folder / f"rows{suffix}", into=out, overwrite=True, progress=False, **options)
            results.append(out.read_bytes())
        assert results[0] == results[1], suffix
        got = read(tmp_path / f"here{suffix}.parquet")
        assert got.column_names == [*rows.column_names, "advantages", "returns", "positive"]
        if suffix not in (".csv", ".jsonl"):  # whose numbers are float64
            assert_same_bits(got, recorded.result)
