"""Sort rows whose episodes are scattered over the source, and values that are in another order than the source.

duckdb sorts and joins them, in files if memory does not suffice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastgae._threads import usable_cpus
from fastgae.data.arrays import arrays_of
from fastgae.data.errors import DataError, WriteError, argument, is_interrupt
from fastgae.data.formats import NAMING
from fastgae.data.pieces import SLICE, Piece, Run, parquet_pieces
from fastgae.data.plan import BYTES_PER_ROW, ROW, Plan
from fastgae.data.progress import Advance
from fastgae.data.streams import quoted
from fastgae.data.values_file import NAME, values_and_keys, with_values
from fastgae.data.written import complete

COPY, JOINED, SORTING = "sorted.parquet", "joined.parquet", "sorting"
SHARE = 3 / 4  # of memory for duckdb: it takes somewhat more, and its inputs and outputs take the rest
# With less memory, duckdb fails if there are many rows: 100 million need some 190 MB for each thread.
LEAST_MB, MB_PER_THREAD = 96, 192


def sorted_plan(plan: Plan, folder: Path, advance: Advance) -> Plan:
    """Return the plan over a copy of the rows in which the rows of each episode are adjacent."""
    copy = folder / COPY
    if not copy.exists():
        order = _listed([*plan.columns.named(*NAMING, "step"), ROW])
        rows = {"rows": _numbered(plan.pieces, plan.read, plan.most, advance)}
        with _queried(rows, f"* FROM rows ORDER BY {order}", plan, folder) as batches:
            _write(batches, copy, advance, batches.schema)
    return plan._replace(pieces=parquet_pieces(copy), source=Run(tuple(plan.pieces)))


def in_source_order(tables: Iterator[pa.Table], plan: Plan, folder: Path) -> Iterator[pa.Table]:
    """Return the results in the order of the source; each result names its row of the source."""
    rows = (batch for table in tables for batch in table.to_batches())
    with _queried({"rows": rows}, f'* EXCLUDE "{ROW}" FROM rows ORDER BY "{ROW}"', plan, folder) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])


def joined_plan(plan: Plan, folder: Path, advance: Advance) -> Plan:
    """Return the plan with the values of the file beside the source in the order of the source, found by their keys."""
    assert plan.beside is not None
    (pieces, path), keys, copy = plan.beside, plan.columns.keys, folder / JOINED
    if not copy.exists():
        inputs = {
            "rows": _numbered(pieces, keys, plan.most, advance),
            "found": values_and_keys(path, keys, min(plan.most, SLICE)),
        }
        query = f'rows.*, "{NAME}" FROM rows LEFT JOIN found USING ({_listed(keys)}) ORDER BY "{ROW}"'
        with _queried(inputs, query, plan, folder) as batches:
            _write(_checked(batches, path, plan), copy, advance, batches.schema)
    return plan._replace(pieces=with_values(pieces, copy, ()), beside=None)


def _checked(batches: Iterable[pa.RecordBatch], path: Path, plan: Plan) -> Iterator[pa.RecordBatch]:
    """Return batches of joined rows; raise if a row of the source has not found one value."""
    before = -1
    for batch in batches:
        table = pa.Table.from_batches([batch])
        rows = arrays_of(table[ROW])
        for wrong, fault in (
            (np.diff(rows, prepend=before) == 0, "several values"),
            (np.asarray(pc.is_null(table[NAME])), "no value"),
        ):
            if wrong.any():
                at = int(np.argmax(wrong))
                raise DataError(f"{path} has {fault} for {plan.columns.place(table, at, int(rows[at]))}")
        before = int(rows[-1])
        yield batch


def _write(batches: Iterable[pa.RecordBatch], path: Path, advance: Advance, schema: pa.Schema) -> None:
    with complete(path) as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            advance(batch.num_rows - batch.num_rows // 2)


def _numbered(pieces: Sequence[Piece], columns: list[str], most: int, advance: Advance) -> Iterator[pa.RecordBatch]:
    """Return the rows of the source with their numbers."""
    row = 0
    for piece in pieces:
        for batch in piece.batches(columns, min(most, SLICE)):
            yield _with_number(batch, row)
            row += batch.num_rows
            advance(batch.num_rows // 2)  # the other half is for the sorted rows


def _with_number(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    return batch.append_column(ROW, pa.array(np.arange(first, first + batch.num_rows)))


@contextmanager
def _queried(
    inputs: Mapping[str, Iterator[pa.RecordBatch]], selected: str, plan: Plan, folder: Path
) -> Iterator[pa.RecordBatchReader]:
    """Return the results of a query over tables of these names, in batches."""
    pa.default_memory_pool().release_unused()  # because duckdb needs that memory now
    limit = max(LEAST_MB, int(plan.most * BYTES_PER_ROW * SHARE) // 2**20)
    settings: dict[str, str | bool | int] = {
        "memory_limit": f"{limit}MB",
        "temp_directory": str(folder / SORTING),
        "preserve_insertion_order": False,  # the query names an order
        "threads": max(1, min(plan.how.num_threads or usable_cpus(), limit // MB_PER_THREAD)),
    }
    raised: list[BaseException] = []

    def kept(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except (Exception, KeyboardInterrupt) as error:
            raised.append(error)  # duckdb makes a text of it
            raise

    tables = {name: (next(every := kept(rows)), every) for name, rows in inputs.items()}
    try:
        with duckdb.connect(config=settings) as database:
            for name, (first, others) in tables.items():
                database.register(name, pa.RecordBatchReader.from_batches(first.schema, chain([first], others)))
            yield database.sql(f"SELECT {selected}").to_arrow_reader(min(plan.most, SLICE))
    except WriteError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:  # from the batches, those of pyarrow
        if raised:
            raise raised[0] from error
        if "Out of Memory" in str(error):
            raise DataError(
                "the rows of episodes or their values are scattered, and duckdb needs more memory to sort them: pass a "
                f"larger {argument('memory')}"
            ) from error
        if isinstance(error, duckdb.BinderException | duckdb.ConversionException):
            raise DataError(f"rows cannot be found by their keys: {str(error).splitlines()[0]}") from error
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        if not isinstance(error, duckdb.IOException | OSError):
            raise
        raise WriteError(folder, str(error).splitlines()[0]) from error


def _listed(names: list[str]) -> str:
    return ", ".join(map(quoted, names))
