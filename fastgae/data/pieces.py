"""Read files from their last row to their first, in runs of limited size."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from fastgae.data.errors import DataError, reading
from fastgae.data.urls import is_remote, opened_binary, version_of
from fastgae.data.written import complete

SLICE = 65_536  # rows to read at once from arrays in which any rows can be read
MOST_AT_ONCE = 2**20  # rows of a run; with more, the processor waits for memory
MOST_OPEN = 2
LARGE = "large.arrow"  # the copy of a row group that does not fit into memory
VALUES = "values.arrow"  # the copy of a file of values whose rows come in one order only
SCRATCH = "scratch-"  # how the names of files begin on systems that know no files without names


@dataclass
class OpenNow:
    """The open files and the scratch folder inside of open_files."""

    files: dict[tuple[Path, Any], Any] = field(default_factory=dict)
    scratch: Path | None = None
    until_end: ExitStack = field(default_factory=ExitStack)


# Every thread has its own.
_open_now: ContextVar[OpenNow | None] = ContextVar("what is open", default=None)


class Piece(NamedTuple):
    """Rows that a file can read by themselves: a row group of Parquet, a batch of Arrow, a slice of an HDF5 array."""

    path: Path
    first: int  # its first row, counted from the beginning of the file
    rows: int
    schema: pa.Schema  # of its file
    batches: Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]  # the rows, at most this many at a time
    # One row with the columns that a file also has of the state after the last of these rows, if an episode ends there.
    final: Callable[[Sequence[str]], pa.Table] | None = None
    # Reads any rows of the file, if it can, so that adjacent pieces are read at once.
    any_rows: Callable[[int, int, Sequence[str]], pa.Table] | None = None

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return all rows. There may be none: some writers leave such row groups and batches."""
        batches = list(self.batches(columns, max(self.rows, 1)))
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table().select(columns)


class Run(NamedTuple):
    """Pieces that are computed together."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return the columns of all rows, each in one piece of memory."""
        parts: list[pa.Table] = []
        for any_rows, adjacent in groupby(self.pieces, attrgetter("any_rows")):
            pieces = list(adjacent)
            if any_rows is None:
                parts += [piece.read(columns) for piece in pieces]
            else:
                parts.append(any_rows(pieces[0].first, pieces[-1].first + pieces[-1].rows, columns))
        return pa.concat_tables(parts).combine_chunks()

    def finals(self, columns: Sequence[str], rows: Collection[int]) -> tuple[list[int], pa.Table] | None:
        """Return the rows at which an episode ends and the file has the state after it, and these states as a table."""
        last = [row - 1 for row in accumulate(piece.rows for piece in self.pieces)]
        found = [
            (row, piece.final) for row, piece in zip(last, self.pieces, strict=True) if piece.final and row in rows
        ]
        if not found:
            return None
        return [row for row, _ in found], pa.concat_tables(final(columns) for _, final in found)

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file of a row, and its place there."""
        for piece in self.pieces:
            if row < piece.rows:
                return piece.path, piece.first + row
            row -= piece.rows
        raise IndexError(row)


def runs_backwards(pieces: Sequence[Piece], columns: Sequence[str], most: int, scratch: Path) -> Iterator[Run]:
    """Return runs of at most this many rows, from the last to the first.

    Parquet is read by whole row groups. A larger one is copied first, piece by piece, into a file in ``scratch``.
    """
    for group in grouped(pieces, most):
        if group[0].rows <= most:
            yield Run(group)
            continue
        copy = scratch / LARGE
        yield from (Run((part,)) for part in reversed(copied(group[0], columns, most, copy)))
        copy.unlink()


def grouped(pieces: Sequence[Piece], most: int) -> Iterator[tuple[Piece, ...]]:
    """Return groups of pieces with at most this many rows together, or of one that has more, from the last group on."""
    most = min(most, MOST_AT_ONCE)
    waiting: list[Piece] = []
    rows = 0  # of those that wait
    for piece in reversed(pieces):
        if waiting and rows + piece.rows > most:
            yield tuple(reversed(waiting))
            waiting, rows = [], 0
        waiting.append(piece)
        rows += piece.rows
    if waiting:
        yield tuple(reversed(waiting))


def copied(piece: Piece, columns: Sequence[str], most: int, to: Path) -> list[Piece]:
    """Copy a piece to an Arrow file whose batches have at most this many rows, and return these batches."""
    batches = _joined(piece.batches(columns, most), most)
    first = next(batches)
    with complete(to) as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    *parts, last = (part._replace(path=piece.path, first=piece.first + part.first) for part in arrow_pieces(to))
    return [*parts, last._replace(final=piece.final)]


def _joined(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Return the same rows in fewer batches of at most this many rows, because each is computed by itself."""
    waiting: list[pa.RecordBatch] = []
    rows = 0  # of those that wait
    for batch in batches:
        if waiting and rows + batch.num_rows > most:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    yield from [pa.concat_batches(waiting)] if waiting else []


def slices(
    path: Path,
    first: int,
    rows: int,
    schema: pa.Schema,
    read: Callable[[int, int, Sequence[str]], pa.Table],
    final: Callable[[Sequence[str]], pa.Table] | None = None,
) -> list[Piece]:
    """Return rows of a file, any of which ``read(start, stop, columns)`` can read, in pieces of at most SLICE rows."""

    def batches(start: int, stop: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        for begin in range(start, stop, most):
            yield from read(begin, min(begin + most, stop), columns).to_batches()

    end = first + rows
    bounds = [(start, min(start + SLICE, end)) for start in range(first, end, SLICE)]
    return [
        Piece(path, start, stop - start, schema, partial(batches, start, stop), final if stop == end else None, read)
        for start, stop in bounds
    ]


def parquet_pieces(path: Path) -> list[Piece]:
    """Return the row groups of a Parquet file."""
    with reading(path):
        since, metadata = version_of(path)[1], _parquet(path).metadata
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    schema = metadata.schema.to_arrow_schema()

    def batches(group: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        several = rows[group] > SLICE  # to hand few rows to other threads takes longer than to read them
        with reading(path):
            file = opened(_parquet, path, checked_time(path, since))
            if most < rows[group]:
                yield from file.iter_batches(most, [group], columns)
            else:
                yield from file.read_row_group(group, columns, use_threads=several).to_batches()

    return pieces_of(path, rows, schema, batches)


def arrow_pieces(path: Path) -> list[Piece]:
    """Return the batches of an Arrow file."""
    with reading(path), arrow_file(path) as file:
        since = version_of(path)[1]
        rows, schema = [file.get_batch(number).num_rows for number in range(file.num_record_batches)], file.schema

    def batches(number: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        checked_time(path, since)
        with reading(path), arrow_file(path) as file:
            yield checked_batch(file.get_batch(number).select(columns))

    return pieces_of(path, rows, schema, batches)


def checked_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a mapped file; raise if it points out of its memory, which Arrow checks only when asked."""
    batch.validate(full=True)
    return batch


def pieces_of(
    path: Path,
    rows: Sequence[int],
    schema: pa.Schema,
    batches: Callable[[int, Sequence[str], int], Iterator[pa.RecordBatch]],
) -> list[Piece]:
    """Return the pieces of a file, with so many rows each.

    ``batches(number, columns, most)`` returns the rows of a piece, in batches that may have more than ``most`` rows.
    """
    schema = _plain(schema)
    _ = schema.names  # raises here, where the file is known, if a name is not UTF-8

    def decoded_batches(number: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        for batch in map(decoded, batches(number, columns, most)):
            yield from (batch.slice(row, most) for row in range(0, batch.num_rows, most))

    return [
        Piece(path, first, count, schema, partial(decoded_batches, number))
        for number, (count, first) in enumerate(zip(rows, accumulate(rows, initial=0), strict=False))
    ]


def decoded(rows: Any) -> Any:
    """Return a table or batch without dictionaries, which differ from batch to batch, as no Arrow file may have them.

    Text becomes an array of strings too, because few functions of Arrow know views of them.
    """
    before = rows.schema
    schema = _plain(before)
    return rows if schema is before else rows.cast(schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    before = schema.types
    kinds = list(map(_plain_type, before))
    if kinds == before:
        return schema
    return pa.schema(field.with_type(kind) for field, kind in zip(schema, kinds, strict=True))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def first_rows(piece: Piece, rows: int) -> Piece:
    """Return the first rows of a piece."""

    def batches(columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        left = rows
        for batch in piece.batches(columns, most):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    return piece._replace(rows=rows, batches=batches, final=piece.final if rows == piece.rows else None)


def with_columns(piece: Piece, names: Collection[str], made: Callable[[int, int], Mapping[str, Any]]) -> Piece:
    """Return a piece with columns more, which ``made(start, stop)`` makes for these rows of the file."""

    def batches(columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        first = piece.first
        for batch in piece.batches([name for name in columns if name not in names], most):
            more = made(first, first + batch.num_rows)
            arrays = [pa.array(more[name]) if name in names else batch.column(name) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
            first += batch.num_rows

    fields = [(name, pa.array(column).type) for name, column in made(0, 0).items()]
    return piece._replace(schema=pa.schema([*fields, *piece.schema]), batches=batches, any_rows=None)


def check_alike(pieces: Sequence[Piece], columns: Sequence[str]) -> None:
    """Check that all files have the columns to read, in the types of the first file."""
    first = checked = pieces[0]
    for piece in pieces:
        if piece.schema is checked.schema:
            continue
        checked = piece
        for name in columns:
            if name not in first.schema.names:
                continue  # it comes from elsewhere, such as a file of values
            if name not in piece.schema.names:
                raise DataError(f"{piece.path} has no column {name!r}, but {first.path} has one")
            kind, expected = piece.schema.field(name).type, first.schema.field(name).type
            if kind != expected:
                raise DataError(f"{piece.path}: {name} holds {kind}, and in {first.path} {expected}")


def opened(open_file: Callable[[Path], Any], path: Path, since: Any) -> Any:
    """Return what ``open_file`` makes of a file, which stays open: that takes long, and pieces of a file are many."""
    open_now = _open_now.get()
    if open_now is None:
        return open_file(path)
    files = open_now.files
    if (path, since) not in files:
        while len(files) >= MOST_OPEN:
            files.pop(next(iter(files))).close()
        files[path, since] = open_file(path)
    return files[path, since]


@contextmanager
def open_files() -> Iterator[None]:
    """Keep files open between their pieces, and close them at the end: HDF5 opens no file to write that is open."""
    open_now = OpenNow()
    token = _open_now.set(open_now)
    try:
        yield
    finally:
        _open_now.reset(token)
        for file in open_now.files.values():
            file.close()
        open_now.until_end.close()


def until_end() -> ExitStack:
    """Return what is closed at the end of ``open_files``."""
    open_now = _open_now.get()
    return ExitStack() if open_now is None else open_now.until_end


def scratch_file() -> IO[bytes]:
    """Return a file without a name, in the scratch folder."""
    return tempfile.TemporaryFile(prefix=SCRATCH, dir=scratch_folder())


def here(path: Path) -> Path:
    """Return a file, or a copy of a file behind a URL, for libraries that read only files of this machine."""
    if not is_remote(path):
        return path
    copy: Copy = opened(Copy, path, version_of(path)[1])
    return copy.path


class Copy:
    """A copy of a file, which lasts until ``close``."""

    def __init__(self, path: Path) -> None:
        with ExitStack() as stack:
            with tempfile.NamedTemporaryFile(prefix=SCRATCH, dir=scratch_folder(), delete=False) as to:
                self.path = Path(to.name)
                stack.callback(self.close)
                with opened_binary(path, "readahead") as content:
                    shutil.copyfileobj(content, to)
            stack.pop_all()  # the copy is complete and stays

    def close(self) -> None:
        self.path.unlink(missing_ok=True)


def scratch_folder() -> Path:
    """Return the folder for scratch files or, without one, where the system has temporary files."""
    open_now = _open_now.get()
    return Path(tempfile.gettempdir()) if open_now is None or open_now.scratch is None else open_now.scratch


def put_scratch_into(folder: Path) -> None:
    """Let scratch files lie in a folder from now on, because the system's may lie in memory."""
    open_now = _open_now.get()
    if open_now is not None:
        open_now.scratch = folder


def _parquet(path: Path) -> pq.ParquetFile:
    # pyarrow joins neighbouring columns to one range if it may read ahead.
    return pq.ParquetFile(opened_binary(path), pre_buffer=True) if is_remote(path) else pq.ParquetFile(path)


def parquet_metadata(path: Path) -> Mapping[bytes, bytes]:
    """Return the metadata of a Parquet file, except its columns."""
    return _parquet(path).metadata.metadata or {}


@contextmanager
def arrow_file(path: Path) -> Iterator[pa.ipc.RecordBatchFileReader]:
    with pa.PythonFile(opened_binary(path), "r") if is_remote(path) else pa.memory_map(str(path)) as file:
        yield pa.ipc.open_file(file)


def checked_time(path: Path, since: Any) -> Any:
    """Return the time of the file's last change; raise if it differs from the given time.

    What is behind a URL is asked once more at the end of a run, because every question takes a moment.
    """
    with reading(path):
        if not is_remote(path) and version_of(path)[1] != since:
            raise DataError(f"{path} changed while it was read")
    return since
