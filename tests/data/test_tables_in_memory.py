"""A table in, a table out: the same bits as from files, for every kind of table, and nothing stays on the disk."""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

from fastgae.data import DataError, compute, on_table

from .recorded import ROWS, assert_same_bits, computed, limit, refused, write


class Stream:
    """What pandas, Polars, duckdb and others have in common."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def views_and_dictionaries(rows, folder):
    names = pa.array([f"e{number}" for number in rows["episode"].to_pylist()])
    return rows.set_column(0, "episode", names.cast(pa.string_view())).append_column("x", names.dictionary_encode())


def dictionaries_of_views(rows, folder):
    """As Polars exports a Categorical and an Enum."""
    table = views_and_dictionaries(rows, folder)
    names = table["x"].combine_chunks()
    views = pa.DictionaryArray.from_arrays(names.indices, names.dictionary.cast(pa.string_view()))
    return table.set_column(0, "episode", views).rename_columns(table.column_names)


class Marked(pa.ExtensionType):
    """A type that is not hashable, as few are that users define."""

    def __init__(self, storage=None):
        super().__init__(storage or pa.int64(), "fastgae.marked")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage)


def extensions(rows, folder):
    for at, name in enumerate(rows.column_names[:3]):
        items = rows[name].combine_chunks()
        rows = rows.set_column(at, name, pa.ExtensionArray.from_storage(Marked(items.type), items))
    return rows


def dataset(rows, folder):
    write(rows.slice(0, 1000), folder / "a.parquet", 100)
    write(rows.slice(1000), folder / "b.parquet", 3000)
    return pa.dataset.dataset(folder)


FLAGS = {"terminated": "terminals", "truncated": "timeouts"}  # which do not hide the columns of names and steps
ONLY_COMPUTE = {  # on_table is told the format, and takes no files
    "names of D4RL": lambda rows, _: rows.rename_columns(FLAGS),
    "dataset": dataset,
    "filtered dataset": lambda rows, folder: dataset(rows, folder).filter(pa.dataset.field("step") >= 0),
    "huggingface": lambda rows, _: pytest.importorskip("datasets").Dataset(rows),
}
KINDS = ONLY_COMPUTE | {
    "table": lambda rows, _: rows,
    "views and dictionaries": views_and_dictionaries,
    "dictionaries of views": dictionaries_of_views,
    "extensions": extensions,
    "stream": lambda rows, _: Stream(rows),
    "reader": lambda rows, _: rows.to_reader(77),
    "pandas": lambda rows, _: pytest.importorskip("pandas") and rows.to_pandas(),
    "polars": lambda rows, _: pytest.importorskip("polars").from_arrow(rows),
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits(tmp_path, recorded, kind, monkeypatch):
    (tmp_path / "rows").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("fastgae.data.tables.SLICE", 1100)
    for order, memory in ((np.arange(ROWS), limit(200)), (np.random.default_rng(0).permutation(ROWS), "1GB")):
        rows = recorded.table().take(order)
        got = compute(KINDS[kind](rows, tmp_path / "rows"), memory=memory, progress=False)
        assert got.column_names == ["episode", "step", "advantages", "returns"]
        steps = got["step"].combine_chunks()
        assert np.array_equal(getattr(steps, "storage", steps), recorded.step[order])
        assert_same_bits(got, recorded.result, order)
        written = computed(KINDS[kind](rows, tmp_path / "rows"), tmp_path / "out.parquet")
        assert_same_bits(written, recorded.result, order)
        if kind not in ONLY_COMPUTE:
            assert_same_bits(on_table(KINDS[kind](rows, tmp_path)), recorded.result, order)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_bad_tables(tmp_path, recorded):
    rewards = recorded.rewards.copy()
    rewards[77] = np.nan
    refused(r"^the table: episode \d+, step \d+, row 77: rewards is NaN", recorded.table(rewards=rewards))
    refused("there are no rows in the table", recorded.table().slice(0, 0))
    refused("the table cannot be read: ", pa.array([1]))
    source = pa.dataset.dataset(write(recorded.table(), tmp_path / "a.parquet", 100))
    (tmp_path / "a.parquet").unlink()
    refused(r"a\.parquet vanished while it was read", source)
    with pytest.raises(DataError, match=r"the table cannot be read: expected .*, got Recorded"):
        on_table(recorded)
    for out in ((), (tmp_path / "out.parquet",)):
        refused("^resume.* needs a source of files", recorded.table(), *out, error=ValueError, resume=True)
    for source in (5, [recorded.table()], {"rewards": rewards}):
        message = r"source must be paths, or a table with __arrow_c_stream__, got (int|T|d)"
        refused(message, source, error=TypeError)


def test_what_hugging_face_has_beside_datasets(recorded):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(recorded.table())
    for source in (datasets.DatasetDict(train=rows), rows.to_iterable_dataset()):
        message = r"source must be one split of a Dataset of Hugging Face, got (Data|Iter)"
        refused(message, source, error=TypeError)
    order = np.random.default_rng(0).permutation(ROWS)
    assert_same_bits(compute(rows.select(order), memory=limit(500), progress=False), recorded.result, order)
