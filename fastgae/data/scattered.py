"""Sort rows whose episodes are scattered over the source. duckdb sorts them, in files if memory does not suffice."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastgae._threads import usable_cpus
from fastgae.data.errors import DataError, WriteError
from fastgae.data.formats import NAMING
from fastgae.data.pieces import SLICE, Run, parquet_pieces
from fastgae.data.plan import BYTES_PER_ROW, ROW, Plan
from fastgae.data.progress import Advance
from fastgae.data.streams import quoted
from fastgae.data.written import complete

COPY, SORTING = "sorted.parquet", "sorting"
SHARE = 3 / 4  # of memory for duckdb: it takes somewhat more, and its inputs and outputs take the rest
# With less memory, duckdb fails if there are many rows: 100 million need some 190 MB for each thread.
LEAST_MB, MB_PER_THREAD = 96, 192


def is_sorted(folder: Path) -> bool:
    """Return whether an earlier run has made the sorted copy."""
    return (folder / COPY).exists()


def sorted_plan(plan: Plan, folder: Path, advance: Advance) -> Plan:
    """Return the plan over a copy of the rows in which the rows of each episode are adjacent."""
    copy = folder / COPY
    if not is_sorted(folder):
        order = ", ".join(map(quoted, [*plan.columns.named(*NAMING, "step"), ROW]))
        with (
            _sorted(_numbered(plan, advance), f"* FROM rows ORDER BY {order}", plan, folder) as batches,
            complete(copy) as file,
            pq.ParquetWriter(file, batches.schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                advance(batch.num_rows - batch.num_rows // 2)
    return plan._replace(pieces=parquet_pieces(copy), source=Run(tuple(plan.pieces)))


def in_source_order(tables: Iterator[pa.Table], plan: Plan, folder: Path) -> Iterator[pa.Table]:
    """Return the results in the order of the source; each result names its row of the source."""
    rows = (batch for table in tables for batch in table.to_batches())
    with _sorted(rows, f'* EXCLUDE "{ROW}" FROM rows ORDER BY "{ROW}"', plan, folder) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _numbered(plan: Plan, advance: Advance) -> Iterator[pa.RecordBatch]:
    """Return the rows of the source with their numbers."""
    row = 0
    for piece in plan.pieces:
        for batch in piece.batches(plan.read, min(plan.most, SLICE)):
            yield _with_number(batch, row)
            row += batch.num_rows
            advance(batch.num_rows // 2)  # the other half is for the sorted rows


def _with_number(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    return batch.append_column(ROW, pa.array(np.arange(first, first + batch.num_rows)))


@contextmanager
def _sorted(rows: Iterator[pa.RecordBatch], selected: str, plan: Plan, folder: Path) -> Iterator[pa.RecordBatchReader]:
    """Return the results of a query over the rows, in batches."""
    pa.default_memory_pool().release_unused()  # because duckdb needs that memory now
    limit = max(LEAST_MB, int(plan.most * BYTES_PER_ROW * SHARE) // 2**20)
    settings: dict[str, str | bool | int] = {
        "memory_limit": f"{limit}MB",
        "temp_directory": str(folder / SORTING),
        "preserve_insertion_order": False,  # the query names an order
        "threads": max(1, min(plan.how.num_threads or usable_cpus(), limit // MB_PER_THREAD)),
    }
    raised: list[BaseException] = []

    def kept() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except (Exception, KeyboardInterrupt) as error:
            raised.append(error)  # duckdb makes a text of it
            raise

    first = next(every := kept())
    try:
        with duckdb.connect(config=settings) as database:
            database.register("rows", pa.RecordBatchReader.from_batches(first.schema, chain([first], every)))
            yield database.sql(f"SELECT {selected}").to_arrow_reader(min(plan.most, SLICE))
    except WriteError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:  # from the batches, those of pyarrow
        if raised:
            raise raised[0] from error
        if "Out of Memory" in str(error):
            raise DataError(
                "the rows of episodes are scattered, and duckdb needs more memory to sort them: pass a larger memory"
            ) from error
        if "nterrupted" in str(error):  # by Ctrl-C
            raise KeyboardInterrupt from error
        if not isinstance(error, duckdb.IOException | OSError):
            raise
        raise WriteError(folder, str(error).splitlines()[0]) from error
