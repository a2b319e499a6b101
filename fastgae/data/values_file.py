"""Values in a separate file, in the order of the source.

There is one for each row; or, if the source has the state after each episode, one for each state: T + 1 per episode.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from fastgae.data.arrays import check_numbers, column_of
from fastgae.data.errors import DataError, reading
from fastgae.data.formats import TABLES
from fastgae.data.kinds import FORWARD, NPY, by_suffix, is_data, kind_of
from fastgae.data.npz import npy_array
from fastgae.data.pieces import SLICE, VALUES, Piece, copied, scratch_folder
from fastgae.data.places import log_of, path_of

COLUMN = "__values__"
NAME = "values"  # of the column in a table

# Returns the rows start … stop - 1: COLUMN, and the keys that the file has.
Rows: TypeAlias = Callable[[int, int], pa.Table]


class OrderError(DataError):
    """The keys of a file of values are not those of the source, but may be in another order."""


def is_values_file(values: str | os.PathLike[str], columns: Sequence[str]) -> bool:
    """Return whether this is the name of a file and not of a column."""
    if values in columns:
        return False
    path = path_of("values", values)
    return by_suffix(path) is not None or is_data(path) or (path.is_dir() and log_of(path) is not None)


def with_values(pieces: Sequence[Piece], path: Path, keys: Sequence[str]) -> list[Piece]:
    """Return the pieces with the values of a file as one more column. If that file has keys too, they must agree.

    If they do not, reading raises OrderError.
    """
    with reading(path):
        count, rows = _npy(path) if kind_of(path) == NPY else _table(path, keys)
    counts = [piece.rows for piece in pieces]
    states = [piece.rows + (piece.final is not None) for piece in pieces]
    expected = {sum(states): states, sum(counts): counts}
    if count not in expected:
        episodes = sum(states) - sum(counts)
        more = f", or {sum(states):,}, one more for each of {episodes:,} episodes" if episodes else ""
        raise DataError(f"{path} has {count:,} values; expected {sum(counts):,}, one for each row of the source{more}")
    firsts = accumulate(expected[count], initial=0)
    each = zip(pieces, firsts, expected[count], strict=False)
    return [_beside(piece, first, rows, path, have > piece.rows) for piece, first, have in each]


def _beside(piece: Piece, first: int, rows: Rows, path: Path, has_final: bool) -> Piece:
    def add(table: pa.Table, start: int) -> pa.Table:
        found = rows(first + start, first + start + len(table))
        for key in found.column_names[1:]:
            if key in table.column_names and not _same(found[key], table[key]):
                raise OrderError(f"{path} has other rows than the source, in its column {key}")
        return table.append_column(COLUMN, found[COLUMN])

    def batches(columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in piece.batches([name for name in columns if name != COLUMN], most):
            table = pa.Table.from_batches([batch])
            yield from (add(table, start).select(columns) if COLUMN in columns else table).combine_chunks().to_batches()
            start += len(table)

    def final(columns: Sequence[str]) -> pa.Table:
        return rows(first + piece.rows, first + piece.rows + 1).select(columns)

    return piece._replace(batches=batches, final=final if has_final else None, any_rows=None)


def _same(found: pa.ChunkedArray, key: pa.ChunkedArray) -> bool:
    """Return whether two columns hold the same values, perhaps in different types."""
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return bool(found.cast(key.type).combine_chunks().equals(key.combine_chunks()))
    return False


def _npy(path: Path) -> tuple[int, Rows]:
    values = npy_array(path)
    try:
        check_numbers(values.dtype)
    except TypeError as error:
        raise DataError(f"{path} is not an .npy file of numbers: {error}") from error
    return len(values), lambda start, stop: pa.table({COLUMN: column_of(values[start:stop])})


def _table(path: Path, keys: Sequence[str]) -> tuple[int, Rows]:
    if (kind := kind_of(path)) not in TABLES:
        raise DataError(f"values are read from an .npy file, or a table such as Parquet; {path} is of {kind}")
    pieces = TABLES[kind](path)
    firsts = accumulate((piece.rows for piece in pieces), initial=0)  # a table with a log counts the rows of each file
    pieces = [piece._replace(first=first) for piece, first in zip(pieces, firsts, strict=False)]
    names = pieces[0].schema.names if pieces else [NAME]
    if NAME not in names:
        raise DataError(f"{path} has no column {NAME!r}; there are {', '.join(names)}")
    columns = [NAME, *(key for key in keys if key in names)]

    @cache
    def parts() -> Sequence[Piece]:
        """Return pieces of which any rows can be read; rows that come in one order only are copied first."""
        if kind not in FORWARD:
            return pieces
        return [part for piece in pieces for part in copied(piece, columns, SLICE, scratch_folder() / VALUES)]

    return sum(piece.rows for piece in pieces), lambda start, stop: _rows_of(parts(), columns, start, stop)


def values_and_keys(path: Path, keys: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """Return all rows of a table of values, with the columns that name the rows; raise OrderError if one is missing."""
    pieces = TABLES[kind_of(path)](path)
    for key in keys:
        if key not in pieces[0].schema.names:
            raise OrderError(f"{path} has another order than the source, and no column {key}")
    return (batch for piece in pieces for batch in piece.batches([NAME, *keys], most))


def _rows_of(pieces: Sequence[Piece], columns: Sequence[str], start: int, stop: int) -> pa.Table:
    """Return rows of a table that may begin and end inside pieces."""
    parts = [
        piece.read(columns).slice(
            max(start - piece.first, 0), min(stop, piece.first + piece.rows) - max(start, piece.first)
        )
        for piece in pieces
        if piece.first < stop and start < piece.first + piece.rows
    ]
    return pa.concat_tables(parts).rename_columns([COLUMN, *columns[1:]])
