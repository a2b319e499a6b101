"""Read Parquet and Arrow files from their last row to their first, no more than a number of rows at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from fastgae.data.errors import DataError, reading

CONTINUATION = b"\xff" * 4  # how an Arrow stream begins


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
            writer.write_batch(batch)
    return [part._replace(path=piece.path, first=piece.first + part.first) for part in arrow_pieces(to)]


def parquet_pieces(path: Path) -> list[Piece]:
    """Return the row groups of a Parquet file."""
    with reading(path):
        since, metadata = path.stat().st_mtime_ns, pq.read_metadata(path)
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def read(group: int, columns: Sequence[str]) -> pa.Table:
        with reading(path):
            return _parquet(path, checked_time(path, since)).read_row_group(group, columns)

    def batches(group: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        with reading(path):
            yield from _parquet(path, checked_time(path, since)).iter_batches(most, [group], columns)

    return _pieces(path, rows, read, batches)


def arrow_pieces(path: Path) -> list[Piece]:
    """Return the batches of an Arrow file."""
    with reading(path), arrow_file(path) as file:
        since = path.stat().st_mtime_ns
        rows = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]

    def read(number: int, columns: Sequence[str]) -> pa.Table:
        checked_time(path, since)
        with reading(path), arrow_file(path) as file:
            return pa.Table.from_batches([file.get_batch(number).select(columns)])

    def batches(number: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        yield from read(number, columns).to_batches(most)

    return _pieces(path, rows, read, batches)


def _pieces(
    path: Path,
    rows: Sequence[int],
    read: Callable[[int, Sequence[str]], pa.Table],
    batches: Callable[[int, Sequence[str], int], Iterator[pa.RecordBatch]],
) -> list[Piece]:
    return [
        Piece(path, first, count, partial(read, number), partial(batches, number))
        for number, (count, first) in enumerate(zip(rows, accumulate(rows, initial=0), strict=False))
    ]


@lru_cache(maxsize=2)  # a footer takes long to read, and pieces of one file follow each other
def _parquet(path: Path, since: int) -> pq.ParquetFile:
    return pq.ParquetFile(path, memory_map=True)


@contextmanager
def arrow_file(path: Path) -> Iterator[pa.ipc.RecordBatchFileReader]:
    with pa.memory_map(str(path)) as file:
        if file.read(len(CONTINUATION)) == CONTINUATION:
            raise DataError(f"{path} is an Arrow stream, which cannot be read from its end: write an Arrow file")
        file.seek(0)
        yield pa.ipc.open_file(file)


def checked_time(path: Path, since: int) -> int:
    """Return when the file was changed last; raise if that is not the time before."""
    with reading(path):
        if path.stat().st_mtime_ns != since:
            raise DataError(f"{path} changed while it was read")
    return since
