"""A table in, a table out: the same bits as from files, for every kind of table, and nothing stays on the disk."""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

from fastgae.data import DataError, compute, on_table

from .recorded import ROWS, assert_same_bits, limit, read, write


class Stream:
    """What pandas, Polars, duckdb and others have in common."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def table(rows, folder):
    return rows


def views_and_dictionaries(rows, folder):
    names = pa.array([f"e{number}" for number in rows["episode"].to_pylist()])
    return rows.set_column(0, "episode", names.cast(pa.string_view())).append_column("x", names.dictionary_encode())


def stream(rows, folder):
    return Stream(rows)


def reader(rows, folder):
    return rows.to_reader(77)


def dataset(rows, folder):
    write(rows.slice(0, 1000), folder / "a.parquet", 100)
    write(rows.slice(1000), folder / "b.parquet", 3000)
    return pa.dataset.dataset(folder)


def filtered_dataset(rows, folder):
    return dataset(rows, folder).filter(pa.dataset.field("step") >= 0)


def huggingface(rows, folder):
    return pytest.importorskip("datasets").Dataset(rows)


def pandas(rows, folder):
    pytest.importorskip("pandas")
    return rows.to_pandas()


def polars(rows, folder):
    return pytest.importorskip("polars").from_arrow(rows)


KINDS = (table, views_and_dictionaries, stream, reader, dataset, filtered_dataset, huggingface, pandas, polars)


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits(tmp_path, recorded, kind, monkeypatch):
    (tmp_path / "rows").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for order, memory in ((np.arange(ROWS), limit(200)), (np.random.default_rng(0).permutation(ROWS), "1GB")):
        rows = recorded.table().take(order)
        got = compute(kind(rows, tmp_path / "rows"), memory=memory, progress=False)
        assert got.column_names == ["episode", "step", "advantages", "returns"]
        assert np.array_equal(got["step"], recorded.step[order])
        assert_same_bits(got, recorded.result, order)
        report = compute(kind(rows, tmp_path / "rows"), tmp_path / "out.parquet", progress=False)
        assert report.steps == ROWS
        assert_same_bits(read(tmp_path / "out.parquet"), recorded.result, order)
        (tmp_path / "out.parquet").unlink()
        if kind not in (dataset, filtered_dataset, huggingface):
            assert_same_bits(on_table(kind(rows, tmp_path)), recorded.result, order)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_bad_tables(recorded):
    rewards = recorded.rewards.copy()
    rewards[77] = np.nan
    with pytest.raises(DataError, match=r"^the table: episode \d+, step \d+, row 77: rewards is NaN"):
        compute(recorded.table(rewards=rewards), progress=False)
    with pytest.raises(DataError, match="there are no rows in the table"):
        compute(recorded.table().slice(0, 0), progress=False)
    with pytest.raises(ValueError, match="resume needs a source of files, and this one is a table in memory"):
        compute(recorded.table(), resume=True, progress=False)
    for source in (5, [recorded.table()], {"rewards": rewards}):
        with pytest.raises(TypeError, match=r"source must be paths, or a table with __arrow_c_stream__, got (int|T|d)"):
            compute(source, progress=False)


def test_what_hugging_face_has_beside_datasets(recorded):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(recorded.table())
    for source in (datasets.DatasetDict(train=rows), rows.to_iterable_dataset()):
        with pytest.raises(TypeError, match=r"source must be one split of a Dataset of Hugging Face, got (Data|Iter)"):
            compute(source, progress=False)
    order = np.random.default_rng(0).permutation(ROWS)
    assert_same_bits(compute(rows.select(order), memory=limit(500), progress=False), recorded.result, order)
