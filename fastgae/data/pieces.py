"""Read Parquet and Arrow files from their last row to their first, no more than a number of rows at once."""

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from fastgae.data.errors import DataError


class Piece(NamedTuple):
    """Rows that a file can read by themselves: a row group of Parquet, a batch of Arrow."""

    path: Path
    first: int  # its first row, counted from the beginning of the file
    rows: int
    read: Callable[[Sequence[str]], pa.Table]
    batches: Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]  # the same rows, so many at a time


class Run(NamedTuple):
    """Pieces that are computed together."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def read(self, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables(piece.read(columns) for piece in self.pieces)

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file of a row, and its place there."""
        for piece in self.pieces:
            if row < piece.rows:
                return piece.path, piece.first + row
            row -= piece.rows
        raise IndexError(row)


def runs_backwards(pieces: Sequence[Piece], columns: Sequence[str], most: int, scratch: Path) -> Iterator[Run]:
    """Return runs of at most so many rows, from the last to the first.

    Parquet is read by whole row groups. A larger one is copied first, piece by piece, into a file in ``scratch``.
    """
    waiting: list[Piece] = []
    for piece in reversed(pieces):
        if waiting and sum(each.rows for each in waiting) + piece.rows > most:
            yield Run(tuple(reversed(waiting)))
            waiting = []
        if piece.rows <= most:
            waiting.append(piece)
            continue
        copy = scratch / "large.arrow"
        yield from (Run((part,)) for part in reversed(copied(piece, columns, most, copy)))
        copy.unlink()
    if waiting:
        yield Run(tuple(reversed(waiting)))


def copied(piece: Piece, columns: Sequence[str], most: int, to: Path) -> list[Piece]:
    """Copy a piece to an Arrow file whose batches have at most so many rows, and return these."""
    batches = piece.batches(columns, most)
    first = next(batches)
    with pa.OSFile(str(to), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            for start in range(0, batch.num_rows, most):
                writer.write_batch(batch.slice(start, most))
    return [part._replace(path=piece.path, first=piece.first + part.first) for part in arrow_pieces(to)]


def changed(path: Path) -> int:
    """Return when the file was changed last, in nanoseconds."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


@functools.lru_cache(maxsize=2)  # a footer takes long to read, and pieces of one file follow each other
def _reader(path: Path, since: int) -> pq.ParquetFile:
    return pq.ParquetFile(path, memory_map=True)


def parquet_pieces(path: Path) -> list[Piece]:
    """Return the row groups of a Parquet file."""
    since, metadata = changed(path), pq.read_metadata(path)
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def reader() -> pq.ParquetFile:
        check_unchanged(path, since)
        return _reader(path, since)

    def piece(group: int, first: int) -> Piece:
        return Piece(
            path,
            first,
            rows[group],
            lambda columns: reader().read_row_group(group, columns),
            lambda columns, most: reader().iter_batches(most, [group], columns),
        )

    return list(map(piece, range(len(rows)), accumulate(rows, initial=0)))


def arrow_pieces(path: Path) -> list[Piece]:
    """Return the batches of an Arrow file."""
    since = changed(path)

    def batch(number: int, columns: Sequence[str]) -> pa.RecordBatch:
        check_unchanged(path, since)
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).get_batch(number).select(columns)

    def piece(number: int, first: int) -> Piece:
        return Piece(
            path,
            first,
            rows[number],
            lambda columns: pa.Table.from_batches([batch(number, columns)]),
            lambda columns, most: iter([batch(number, columns)]),
        )

    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        rows = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
    return list(map(piece, range(len(rows)), accumulate(rows, initial=0)))


def check_unchanged(path: Path, since: int) -> None:
    if changed(path) != since:
        raise DataError(f"{path} changed while it was read")
