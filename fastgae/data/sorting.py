"""Sort rows whose episodes are scattered over the source, and find values by their keys: by duckdb, in files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae._support.threads import usable_cpus
from fastgae.data.columns import Columns
from fastgae.data.errors import DataError, argument, brought_by, first_line
from fastgae.data.formats import NAMING
from fastgae.data.rows import SLICE, Advance, Rows, arrays_of, is_list

ROW = "__row__"  # the column of a sorted copy that holds where each row was before
SHARE = 3 / 4  # of memory for duckdb: it takes somewhat more, and its inputs and outputs take the rest
# With less memory, duckdb fails if there are many rows: 100 million need some 190 MB for each thread.
LEAST_MB, MB_PER_THREAD = 96, 192


class Database(NamedTuple):
    """How duckdb may work."""

    folder: Path
    memory: int  # bytes
    num_threads: int | None

    @contextmanager
    def asked(self, inputs: Mapping[str, Iterator[pa.RecordBatch]], query: str) -> Iterator[Any]:
        """Give the results of a query over tables of these names."""
        with brought_by("data", "sorting rows"):
            import duckdb
        pa.default_memory_pool().release_unused()  # because duckdb needs that memory now
        limit = max(LEAST_MB, int(self.memory * SHARE) // 2**20)
        settings: dict[str, Any] = {
            "memory_limit": f"{limit}MB",
            "temp_directory": str(self.folder),  # where it only removes its own files, duckdb_temp_...
            "preserve_insertion_order": False,  # a query that needs an order names it
            "threads": max(1, min(self.num_threads or usable_cpus(), limit // MB_PER_THREAD)),
        }
        raised: list[BaseException] = []

        def kept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except (Exception, KeyboardInterrupt) as error:
                raised.append(error)  # duckdb makes a text of it
                raise

        try:
            with duckdb.connect(config=settings) as database:
                for name, batches in inputs.items():
                    first = next(every := kept(batches))
                    reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], every))
                    database.register(name, reader)
                yield database.sql(query)
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            if raised:
                raise raised[0] from error
            if "nterrupted" in str(error):  # by Ctrl-C
                raise KeyboardInterrupt from error
            if "Out of Memory" in str(error):
                what = "the rows of episodes or their values are scattered, and duckdb needs more memory to sort them"
                raise DataError(f"{what}: pass a larger {argument('memory')}") from error
            if isinstance(error, duckdb.BinderException | duckdb.ConversionException | duckdb.NotSupportedError):
                raise DataError(f"rows cannot be found by their keys: {first_line(error)}") from error
            if isinstance(error, duckdb.IOException):
                raise OSError(first_line(error)) from error
            raise


def new_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Return a new file of numbers, mapped."""
    path.unlink(missing_ok=True)
    array = np.memmap(path, dtype, "w+", shape=shape)
    if hasattr(os, "posix_fallocate"):  # or a full disk would kill the process when it writes to the mapping
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, array.nbytes)
    return array


def _known(rows: Rows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Return columns of the rows in types that duckdb knows."""

    def known(kind: pa.DataType) -> pa.DataType:
        if isinstance(kind, pa.BaseExtensionType):
            return known(kind.storage_type)
        if is_list(kind):  # a fixed size of 0 would end the process
            items, is_empty = known(kind.value_type), getattr(kind, "list_size", 1) == 0
            return pa.list_(items) if is_empty or items != kind.value_type else kind
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(known(field.type)) for field in kind])
        if pa.types.is_duration(kind):
            return pa.int64()
        if pa.types.is_decimal256(kind):
            return pa.decimal128(38, kind.scale)
        return pa.float32() if pa.types.is_float16(kind) else kind

    if "" in columns:
        raise DataError("a column has an empty name, so its rows cannot be sorted, or found by it: rename it")
    if len(alike := {name.lower(): name for name in columns}) < len(columns):
        one = next(name for name in columns if name not in alike.values())
        other = alike[one.lower()]
        raise DataError(
            f"the columns {one!r} and {other!r} differ only in case, so their rows cannot be sorted: rename one"
        )
    kinds = pa.schema([field.with_type(known(field.type)) for field in rows.schema])
    yield from Rows(rows.parts, rows.made, kinds).batches(0, rows.count, columns, SLICE)


def _numbered(rows: Rows, columns: Sequence[str], advance: Advance) -> Iterator[pa.RecordBatch]:
    """Return columns of the rows with their numbers."""
    for batch in _known(rows.also({ROW: lambda start, stop: pa.array(np.arange(start, stop))}), [*columns, ROW]):
        yield batch
        advance(batch.num_rows)


def sort(rows: Rows, read: Sequence[str], columns: Columns, to: Path, database: Database, advance: Advance) -> None:
    """Write columns of the rows, with their numbers, to Parquet, where the rows of each episode are adjacent."""
    to.unlink(missing_ok=True)
    # A step comes once in an episode, so the row, which takes as long as all other columns, is not needed there.
    is_once = {"episode", "step"} <= columns.of_role.keys()
    order = _listed([*columns.named(*NAMING, "step"), *([] if is_once else [ROW])])
    name = str(to).replace("'", "''")
    query = f"COPY (SELECT * FROM rows ORDER BY {order}) TO '{name}' (FORMAT parquet)"
    with database.asked({"rows": _numbered(rows, read, advance)}, query):
        pass


def joined(
    rows: Rows, table: Rows, path: Path, columns: Columns, name: str, to: Array, database: Database, advance: Advance
) -> None:
    """Put the values of a table, found by the keys of the rows, into an array in the order of the rows."""
    keys, count = columns.keys, 0
    found = _known(table, [name, *keys])
    same = []
    for key in keys:
        are_text = {each.schema.field(key).type in (pa.string(), pa.large_string()) for each in (rows, table)}
        kind = "::VARCHAR" if len(are_text) > 1 else ""  # or duckdb would round a text such as 1.4 to an integer
        same.append(f"rows.{_listed([key])}{kind} = found.{_listed([key])}{kind}")
    query = f'SELECT rows.*, found."{name}" FROM rows LEFT JOIN found ON {" AND ".join(same)}'
    with database.asked({"rows": _numbered(rows, keys, advance), "found": found}, query) as results:
        for batch in results.to_arrow_reader(SLICE):
            part = pa.Table.from_batches([batch])
            at = arrays_of(part[ROW])
            if part[name].null_count:
                row = pc.index(pc.is_null(part[name]), True).as_py()
                raise DataError(f"{path} has no value for {columns.place(part, row, int(at[row]))}")
            to[at] = arrays_of(part[name])
            count += len(part)
    if count > rows.count:
        twice = f"SELECT {_listed(keys)} FROM found GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        with database.asked({"found": _known(table, keys)}, twice) as results:
            several = results.to_arrow_table()
        where = columns.place(several, 0, None) if len(several) else "a row, because its keys have other types"
        raise DataError(f"{path} has several values for {where}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)
