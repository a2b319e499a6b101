"""Sort rows whose episodes are scattered over the source. duckdb does it, in files where memory does not suffice."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from fastgae.data.errors import DataError, WriteError
from fastgae.data.formats import NAMING
from fastgae.data.pieces import Run, parquet_pieces
from fastgae.data.plan import BYTES_PER_ROW, ROW, Plan

COPY = "sorted.parquet"
LEAST_MEMORY = 64  # MB; duckdb refuses to sort with much less


def is_sorted(folder: Path) -> bool:
    """Return whether a run before this one has made the sorted copy."""
    return (folder / COPY).exists()


def sorted_plan(plan: Plan, folder: Path) -> Plan:
    """Return the plan over a copy of the rows in which those of each episode follow each other."""
    copy = folder / COPY
    if not is_sorted(folder):
        partial = folder / "sorted.partial"
        order = [*plan.columns.named(*NAMING, "step"), ROW]
        with _database(plan, folder, _numbered(plan)) as database:
            database.execute(
                f"COPY (SELECT * FROM rows ORDER BY {_listed(order)}) TO '{_quoted(partial)}' "
                f"(FORMAT parquet, ROW_GROUP_SIZE {max(2048, plan.most // 4)})"
            )
        partial.replace(copy)
    return plan._replace(pieces=parquet_pieces(copy), source=Run(tuple(plan.pieces)))


def in_source_order(tables: Iterator[pa.Table], plan: Plan, folder: Path) -> Iterator[pa.Table]:
    """Return the results, of which each says the row of the source it belongs to, in the order of the source."""
    with _database(plan, folder, (batch for table in tables for batch in table.to_batches())) as database:
        ordered = database.sql(f'SELECT * EXCLUDE "{ROW}" FROM rows ORDER BY "{ROW}"')
        for batch in ordered.to_arrow_reader(plan.most):
            yield pa.Table.from_batches([batch])


def _numbered(plan: Plan) -> Iterator[pa.RecordBatch]:
    """Return the rows of the source with their numbers."""
    row = 0
    for piece in plan.pieces:
        for batch in piece.batches(plan.read, plan.most):
            yield _with_number(batch, row)
            row += batch.num_rows


def _with_number(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    return batch.append_column(ROW, pa.array(np.arange(first, first + batch.num_rows)))


@contextmanager
def _database(plan: Plan, folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in which the batches are the table ``rows``. What they raise is raised here."""
    memory = max(LEAST_MEMORY, plan.most * BYTES_PER_ROW // 2**20)
    settings = {"memory_limit": f"{memory}MB", "temp_directory": str(folder / "sorting")}
    raised: list[BaseException] = []

    def kept() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (Exception, KeyboardInterrupt) as error:
            raised.append(error)  # duckdb makes a text of it
            raise

    first = next(every := kept())
    try:
        with duckdb.connect(config=settings) as database:
            database.register("rows", pa.RecordBatchReader.from_batches(first.schema, chain([first], every)))
            yield database
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            "the rows of episodes are scattered, and duckdb needs more to sort them: raise memory"
        ) from error
    except duckdb.IOException as error:
        raise WriteError(folder, str(error).splitlines()[0]) from error
    except (duckdb.Error, RuntimeError) as error:
        if raised:
            raise raised[0] from error
        if str(error) == "Query interrupted":  # by Ctrl-C
            raise KeyboardInterrupt from error
        raise


def _listed(names: list[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
