"""What to read, how to compute it, and where a row of it comes from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fastgae.data.columns import Columns, in_envs
from fastgae.data.critic import Valuation
from fastgae.data.errors import DataError
from fastgae.data.estimators import How
from fastgae.data.formats import Format, beside
from fastgae.data.labels import LABEL
from fastgae.data.pieces import Piece, Run
from fastgae.data.shards import Shard
from fastgae.data.steps import RowError, ScatteredError
from fastgae.data.urls import resolved

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
    beside: tuple[Sequence[Piece], Path] | None = None  # the rows without the values, and the file that has them
    shard: Shard | None = None  # the part to compute
    label_quantile: float | None = None  # the part of the advantages that is not positive
    into: bool = False  # the results are written with all columns of the source
    source: Run | None = None  # all rows of the source, where the pieces are a sorted copy of it

    @property
    def is_plain(self) -> bool:
        """Whether the results of a row need no more than the rows of its episode, and are cheap to compute again."""
        asked = (self.values, self.normalize, self.plot, self.shard, self.label_quantile, self.source)
        return all(each is None for each in asked)

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

    @property
    def source_pieces(self) -> Sequence[Piece]:
        """The rows of the source, in its order."""
        return self.pieces if self.source is None else self.source.pieces

    @property
    def source_columns(self) -> list[str]:
        """The columns of the source."""
        names: list[str] = self.source_pieces[0].schema.names
        return names

    @property
    def parts(self) -> tuple[Sequence[Piece], Sequence[Piece]]:
        """The pieces to compute, and those after them."""
        return (self.pieces, ()) if self.shard is None else self.shard.share(self.pieces, self.most)

    @contextmanager
    def naming(self, table: pa.Table, run: Run) -> Iterator[None]:
        """Name the file, the episode and the step in errors of a row."""
        try:
            yield
        except RowError as error:
            if self.source is None and isinstance(error, ScatteredError):
                raise
            at = error.row
            path, row = run.place(at) if self.source is None else self.source.place(table[ROW][at].as_py())
            raise DataError(f"{path}: {self.columns.place(table, at, row)}: {error.fault}") from error

    @property
    def options(self) -> dict[str, Any]:
        """Return everything except the files that affects the results."""
        return {
            "columns": dict(self.columns.of_role),
            "values": self.values and self.values.asked,
            "format": self.format.name,
            "memory": self.most,
            "normalize": self.normalize,
            "rewards": self.columns.success,
            "label_quantile": self.label_quantile,
            "into": self.into,
            **({} if self.shard is None else {"shard": self.shard}),
            **self.how.asked,
        }


def check_out(out: Path, sources: Sequence[Path], plan: Plan) -> None:
    """Check that results and data have different column names and different places."""
    beside_results = plan.source_columns if plan.into else plan.columns.keys
    for name in (*plan.format.results.values(), *([] if plan.label_quantile is None else [LABEL])):
        if name in beside_results:
            raise DataError(f"the source has a column {name!r}, but a column of results has the same name: rename it")
    for source in sources:
        if plan.format.sidecar is beside and resolved(source) in resolved(out).parents:
            raise DataError(f"{out} lies in {source}, and the next run would read it as data: pass a path elsewhere")


def row_bytes(rewards: pa.DataType, pieces: Sequence[Piece], values: Valuation | None) -> int:
    """Return the memory that one row takes: its numbers for each env, and what a critic reads, as table and arrays."""
    numbers = BYTES_PER_ROW * (rewards.shape[0] if in_envs(rewards) else 1)
    if values is None:
        return numbers
    row: pa.RecordBatch = next(pieces[0].batches(values.read, 1))
    return numbers + 2 * int(row.nbytes)
