"""Tables: Parquet, Arrow, CSV, JSON and Delta, and what other libraries hold in memory or read themselves.

pyarrow.dataset, which reads most of them too, takes 0.3 CPU-seconds to import where pandas is installed.
"""

import io
import json
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from fastgae.data.errors import DataError, UnreachableError, brought_by, is_remote, reading
from fastgae.data.files import ARROW, CSV, DELTA, JSON, PARQUET, RANGE, STREAM, opened_binary, version_of
from fastgae.data.rows import SLICE, Batches, Part

THE_TABLE = Path("the table")  # stands for a path where an error names one
END = b"\xff" * 4 + bytes(4)  # of an Arrow stream
BLOCK = 2**24  # bytes of text to parse at once
CONVERSION = re.compile(r"In CSV column #(\d+): .*CSV conversion error to (\w+)")
# The type of a column of text to try next; else it is text.
WIDER = {"null": pa.int64(), "int64": pa.bool_(), "bool": pa.float64()}
PROTOCOL = ("__arrow_c_stream__", "__arrow_c_array__")  # how other libraries give a table
Tabular: TypeAlias = Any  # what is_table() knows


def native(path: Path) -> pa.NativeFile:
    """Open a file to read. A name is bytes here, because it need not be UTF-8, and may look like a URL."""
    return pa.PythonFile(opened_binary(path), "r") if is_remote(path) else pa.OSFile(os.fsencode(path))


def parts_of(path: Path, counts: Sequence[int], schema: pa.Schema, read: Callable[..., Batches]) -> list[Part]:
    """Return the parts of a file with so many rows each; ``read`` takes their number, columns and the most rows."""

    def batches(number: int, columns: Sequence[str], most: int) -> Batches:
        with reading(path):
            yield from read(number, columns, most)

    with reading(path):
        len(schema.names)  # raises if a name of a column is not UTF-8
    each = enumerate(zip(accumulate(counts, initial=0), counts, strict=False))
    return [Part(path, first, rows, schema, partial(batches, number)) for number, (first, rows) in each]


@lru_cache(2)
def open_parquet(path: Path, version: object) -> pq.ParquetFile:
    # pyarrow joins neighbouring columns to one range if it may read ahead. Without a size, it would read a column of a
    # row group at once, which may be larger than memory.
    return pq.ParquetFile(native(path), pre_buffer=is_remote(path), buffer_size=RANGE)


def parquet(path: Path) -> list[Part]:
    """Return the row groups of a Parquet file."""
    version = version_of(path)
    file = open_parquet(path, version)
    counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]

    def read(group: int, columns: Sequence[str], most: int) -> Batches:
        file = open_parquet(path, version)
        if most < counts[group]:
            return file.iter_batches(most, [group], columns)  # type: ignore[no-any-return]
        several = counts[group] > SLICE  # to hand few rows to other threads takes longer than to read them
        return iter(file.read_row_group(group, columns, use_threads=several).to_batches())

    return parts_of(path, counts, file.schema_arrow, read)


def _forward(path: Path, schema: pa.Schema, rows: int, found: Callable[[], Batches]) -> list[Part]:
    """Return all rows of a file as one part, to be read from the first row on."""

    def read(_: int, columns: Sequence[str], most: int) -> Batches:
        for batch in found():
            batch = batch.select([name for name in columns if name in batch.schema.names])
            batch.validate(full=True)  # a mapped file may point out of its memory
            yield batch

    return parts_of(path, [rows], schema, read)


@contextmanager
def _arrow(path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
    with native(path) if is_remote(path) else pa.memory_map(os.fsencode(path)) as file:
        start = file.read(len(END))
        if not start.startswith(END[:4]):
            table = pa.ipc.open_file(file)
            yield table.schema, map(table.get_batch, range(table.num_record_batches))
            return
        file.seek(max(file.size() - len(END), 0))
        if file.read() != END:
            raise DataError(f"{path} cannot be read: this Arrow stream has no end; it was not closed, or was cut")
        file.seek(0)
        table = pa.ipc.open_stream(file)
        yield table.schema, iter(table)


def arrow(path: Path) -> list[Part]:
    """Return an Arrow file, or a stream such as the files of Hugging Face's ``save_to_disk``."""

    def found() -> Batches:
        with _arrow(path) as (_, batches):
            yield from batches

    with _arrow(path) as (schema, batches):
        return _forward(path, schema, sum(batch.num_rows for batch in batches), found)


def csv(path: Path) -> list[Part]:
    """Return a CSV file. Each column has the first type of int64, bool, float64 and text in which all its items are."""
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    with opened_binary(path) as file:
        header = file.readline()
    if header.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
        raise DataError(f"{path} is UTF-16, as Excel saves it: save it as UTF-8")
    bare = re.sub(rb'"[^"]*"', b"", header)
    delimiter = max(",;\t|", key=lambda each: bare.count(each.encode()))
    # NaN is a number; and "" in quotes is a text.
    missing = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    parse = ParseOptions(delimiter=delimiter, newlines_in_values=True)
    options = ReadOptions(use_threads=False, block_size=BLOCK)  # with threads, errors would name no row

    def found(kinds: Mapping[str, pa.DataType], named: pa.Schema | None = None) -> Batches:
        with native(path) as file:
            convert = ConvertOptions(column_types=kinds, **missing)
            for batch in open_csv(file, options, parse, convert):
                yield pa.record_batch(batch.columns, named or batch.schema)

    kinds, schema = dict[str, pa.DataType](), pa.schema([])
    while True:
        rows = 0
        try:
            for batch in found(kinds):
                rows, schema = rows + batch.num_rows, batch.schema
            if not (times := _times(schema)):
                named = pa.schema([field.with_name(field.name.strip()) for field in schema])  # "a, b" has spaces
                return _forward(path, named, rows, partial(found, kinds, named))
            kinds |= times
        except pa.ArrowInvalid as error:
            if (wrong := CONVERSION.search(str(error))) is None or wrong[2] == "string":  # which is the last type
                raise
            kinds[schema.names[int(wrong[1])]] = WIDER.get(wrong[2], pa.string())


def _times(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return text as the type of the columns that pyarrow took for dates or times: they may name episodes."""
    return {field.name: pa.string() for field in schema if pa.types.is_temporal(field.type)}


def json_lines(path: Path) -> list[Part]:
    """Return a file of JSON objects, one after the other, or of a list of them, which is parsed as a whole."""
    from pyarrow.json import ParseOptions, read_json

    def found(kinds: Mapping[str, pa.DataType]) -> Batches:
        options = ParseOptions(newlines_in_values=True, explicit_schema=pa.schema(kinds))
        with opened_binary(path, "readahead") as file:
            block, rest = file.read(BLOCK).removeprefix(BOM_UTF8), b""
            if block.lstrip().startswith(b"["):
                yield from _listed(json.loads(block + file.read())).to_batches()
                return
            while block:
                following = file.read(BLOCK)
                objects, rest = _whole(rest + block) if following else (rest + block, b"")
                if objects.strip():
                    yield from read_json(io.BytesIO(objects), parse_options=options).to_batches()
                block = following

    kinds: dict[str, pa.DataType] = {}
    while True:
        each = [(batch.num_rows, batch.schema) for batch in found(kinds)]
        if times := dict(time for _, schema in each for time in _times(schema).items()):
            kinds |= times
            continue
        schema = pa.unify_schemas([schema for _, schema in each] or [pa.schema([])], promote_options="permissive")
        return _forward(path, schema, sum(rows for rows, _ in each), partial(found, kinds))


def _listed(items: Sequence[Any]) -> pa.Table:
    """Return objects as a table of all their columns. What one lacks is missing there."""
    if other := [item for item in items if not isinstance(item, dict)]:
        raise ValueError(f"a list of rows holds {other[0]!r}; expected objects")
    names = dict.fromkeys(name for item in items for name in item)
    return pa.table({name: [item.get(name) for item in items] for name in names})


def _whole(text: bytes) -> tuple[bytes, bytes]:
    """Return the objects of a text, and the rest, where another object may go on: no comma stands between objects."""
    ends = [found.end() for found in re.finditer(rb"\}\s*\n(?=\s*\{)", text)]
    return (text[: ends[-1]], text[ends[-1] :]) if ends else (b"", text)


def is_table(source: Any) -> bool:
    """Return whether a source is a table or a dataset, and no path."""
    marks = (*PROTOCOL, "with_format", "scanner")
    return any(hasattr(type(source), mark) for mark in marks)  # a data frame has its columns as attributes


def as_table(source: Any) -> pa.Table:
    """Return a table. Before version 25, pyarrow crashes where it reads one with views of texts by its protocol."""
    with reading(THE_TABLE):
        if not isinstance(source, dict) and not any(hasattr(type(source), mark) for mark in PROTOCOL):
            raise TypeError(f"expected a pyarrow.Table, or anything with {PROTOCOL[0]}, got {type(source).__name__}")
        return source if isinstance(source, pa.Table) else pa.table(source)


def tabular(source: Any) -> list[Part]:
    """Return the rows of a table or a dataset."""
    if hasattr(type(source), "scanner"):
        return dataset(source)
    if not hasattr(type(source), "with_format"):
        rows, select = as_table(source), "select"
    elif isinstance(source, Mapping) or not hasattr(source, "__len__"):
        raise TypeError(f"source must be one split of a Dataset of Hugging Face, got {type(source).__name__}")
    else:  # it stays in its files, and gives the rows of a slice as a table
        rows, select = source.with_format("arrow"), "select_columns"

    def read(number: int, columns: Sequence[str], most: int) -> Batches:
        first = number * SLICE
        return iter(getattr(rows, select)(list(columns))[first : first + SLICE].to_batches())

    counts = [min(SLICE, len(rows) - first) for first in range(0, len(rows), SLICE)]
    return parts_of(THE_TABLE, counts or [0], rows[:1].schema, read)


def dataset(source: Any) -> list[Part]:
    """Return the rows of a dataset of pyarrow, of which each file is read forward."""
    try:
        fragments, more = list(source.get_fragments()), {"schema": source.schema}
    except ValueError:  # pyarrow refuses to give the files of a dataset that is filtered
        fragments, more = [source], {}
    more |= {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}  # or many batches are in memory

    def read(fragment: Any, _: int, columns: Sequence[str], most: int) -> Batches:
        return iter(fragment.scanner(columns=list(columns), batch_size=min(most, SLICE), **more).to_batches())

    found = []
    for each in fragments:
        path = Path(getattr(each, "path", THE_TABLE))
        with reading(path):
            found += parts_of(path, [each.count_rows()], source.schema, partial(read, each))
    return found


def delta(path: Path) -> list[Part]:
    """Return the rows that a Delta table has now."""
    with brought_by("deltalake", f"the Delta table {path}, whose files also hold rows that were deleted,"):
        import deltalake
    try:
        return dataset(deltalake.DeltaTable(str(path)).to_pyarrow_dataset())
    except Exception as error:
        raised = UnreachableError if is_remote(path) else DataError
        raise raised(f"{path} cannot be read by deltalake: {' '.join(str(error).split())}") from None


READERS = {PARQUET: parquet, ARROW: arrow, STREAM: arrow, CSV: csv, JSON: json_lines, DELTA: delta}
