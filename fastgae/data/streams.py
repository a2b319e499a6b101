"""Read tables whose rows come in one order only: Arrow streams, and text.

All rows are one piece. So a table that does not fit into memory is copied before it is read from its end.
"""

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc

from fastgae.data.errors import DataError, reading
from fastgae.data.kinds import CSV, kind_of
from fastgae.data.pieces import SLICE, Piece, checked_batch, checked_time, here, pieces_of
from fastgae.data.urls import version_of

END = b"\xff" * 4 + bytes(4)  # of an Arrow stream


@contextmanager
def _stream(path: Path) -> Iterator[pa.RecordBatchReader]:
    with reading(path), pa.memory_map(str(here(path))) as file:
        file.seek(max(file.size() - len(END), 0))
        if file.read() != END:
            raise DataError(f"{path} cannot be read: this Arrow stream has no end; it was not closed, or was cut")
        file.seek(0)
        yield pa.ipc.open_stream(file)


def stream_pieces(path: Path) -> list[Piece]:
    """Return all rows of an Arrow stream, such as the files of Hugging Face's ``save_to_disk``."""
    since = version_of(path)[1]
    with _stream(path) as stream:
        rows, schema = sum(batch.num_rows for batch in stream), stream.schema

    def batches(_: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        checked_time(path, since)
        with _stream(path) as stream:
            yield from (checked_batch(batch.select(columns)) for batch in stream)

    return pieces_of(path, [rows], schema, batches)


@contextmanager
def _text(path: Path) -> Iterator[Callable[..., duckdb.DuckDBPyRelation]]:
    """Return a function that reads the rows as options of duckdb say.

    A short file is read several times in the time in which duckdb makes a database.
    """
    with reading(path), duckdb.connect() as database:
        read = database.read_csv if kind_of(path) == CSV else database.read_json
        yield partial(read, glob.escape(str(here(path))), hive_partitioning=False)  # or duckdb takes it for a pattern


def text_pieces(path: Path) -> list[Piece]:
    """Return all rows of a CSV file, or of a file of JSON objects, in the types that duckdb finds."""
    since = version_of(path)[1]
    with _text(path) as read:
        known, count = _csv(path, read) if kind_of(path) == CSV else _typed(read, "columns", sample_size=-1)
        schema = read(**known).limit(0).to_arrow_table().schema

    def batches(_: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        checked_time(path, since)
        with _text(path) as read:
            rows = read(**known).select(*map(duckdb.ColumnExpression, columns))
            yield from rows.to_arrow_reader(min(most, SLICE))

    return pieces_of(path, [count], schema, batches)


def _csv(path: Path, read: Callable[..., duckdb.DuckDBPyRelation]) -> tuple[dict[str, Any], int]:
    """Return what ``_typed`` does. duckdb takes ten times as long to look at all rows before it chooses types."""
    rows = read()
    integers = {name: "VARCHAR" for name, kind in zip(rows.columns, rows.types, strict=True) if str(kind) == "BIGINT"}
    with suppress(DataError), reading(path):  # raised where a later row is of another type, as text among numbers
        # Later rows may hold other numbers, which duckdb would round without a word.
        matches = (f"regexp_full_match({quoted(name)}, '\\s*[-+]?\\d+\\s*')" for name in integers)
        wrong = (f"count(*) FILTER (NOT {match})" for match in matches)
        found = read(dtype=integers).aggregate(", ".join(["count(*)", *wrong])).fetchall()
        if not any(found[0][1:]):
            return _typed(read, "dtype")
    return _typed(read, "dtype", sample_size=-1)


def _typed(read: Callable[..., duckdb.DuckDBPyRelation], option: str, **options: Any) -> tuple[dict[str, Any], int]:
    """Return the option by which duckdb takes the type of each column, and the number of rows, all of these types."""
    rows = read(**options)
    # Integers of JSON, some of them negative, become HUGEINT, which Arrow does not know.
    types = {name: str(kind).replace("HUGEINT", "BIGINT") for name, kind in zip(rows.columns, rows.types, strict=True)}
    rows.aggregate(", ".join(f"count({quoted(name)})" for name in types)).fetchall()
    return {option: types}, len(rows)


def quoted(name: str) -> str:
    """Return the name of a column for SQL."""
    return '"' + name.replace('"', '""') + '"'
