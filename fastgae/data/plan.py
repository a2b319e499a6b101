"""What to read, how to compute it, and where a row of it comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fastgae.data.columns import Columns, in_envs
from fastgae.data.critic import Valuation
from fastgae.data.errors import DataError
from fastgae.data.estimators import How
from fastgae.data.formats import Format, beside
from fastgae.data.pieces import Piece, Run
from fastgae.data.steps import RowError

BYTES_PER_ROW = 240  # of memory beside what every run needs; measured: 10 million rows of 7 columns, Parquet

# The column of a sorted copy that holds where each row was before.
ROW = "__row__"


class Plan(NamedTuple):
    """What to read and how to compute it."""

    format: Format
    pieces: Sequence[Piece]
    columns: Columns
    how: How
    normalize: str | None
    most: int  # rows in memory at once
    values: Valuation | None = None  # None: a column
    plot: Path | None = None  # the picture to draw
    source: Run | None = None  # all rows of the source, where the pieces are a sorted copy of it

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def keys(self) -> list[str]:
        """The columns that stand beside the results."""
        return [*self.columns.keys, *([ROW] if self.source else [])]

    @property
    def read(self) -> list[str]:
        """The columns to read, each once, though one may have two roles."""
        for_critic = self.values.read if self.values else []
        return list(dict.fromkeys([*self.columns.of_role.values(), *self.keys, *for_critic]))

    def in_file(self, error: RowError, table: pa.Table, run: Run) -> DataError:
        """Return the error of a row that names the file, the episode and the step."""
        at = error.row
        path, row = run.place(at) if self.source is None else self.source.place(table[ROW][at].as_py())
        return DataError(f"{path}: {self.columns.place(table, at, row)}: {error.fault}")

    @property
    def options(self) -> dict[str, Any]:
        """Return everything except the files that affects the results."""
        return {
            "columns": dict(self.columns.of_role),
            "values": self.values and self.values.asked,
            "format": self.format.name,
            "memory": self.most,
            "normalize": self.normalize,
            **self.how.asked,
        }


def check_out(out: Path, sources: Sequence[Path], plan: Plan) -> None:
    """Check that results and data have different column names and different places."""
    for key in plan.columns.keys:
        if key in plan.format.results.values():
            raise DataError(f"the column {key!r} identifies rows, but a column of results has the same name: rename it")
    for source in sources:
        if plan.format.sidecar is beside and source.resolve() in out.resolve().parents:
            raise DataError(f"{out} lies in {source}, and the next run would read it as data: pass a path elsewhere")


def row_bytes(rewards: pa.DataType, pieces: Sequence[Piece], values: Valuation | None) -> int:
    """Return the memory that one row takes: its numbers for each env, and what a critic reads, as table and arrays."""
    numbers = BYTES_PER_ROW * (rewards.shape[0] if in_envs(rewards) else 1)
    if values is None:
        return numbers
    row: pa.RecordBatch = next(pieces[0].batches(values.read, 1))
    return numbers + 2 * int(row.nbytes)
