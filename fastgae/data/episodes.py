"""Find episodes whose rows are not adjacent, and rows of one name in several files that may be several episodes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import whole
from fastgae.data.columns import changes
from fastgae.data.errors import argument
from fastgae.data.pieces import Piece
from fastgae.data.steps import Following, RecordedSteps, RowError, ScatteredError, last_rows

ODD = np.int64(-7046029254386353131)  # 2^64 / golden ratio: multiples of it differ in their high bits


class Episodes:
    """The episodes found so far, as hashes of their names: eight bytes for each.

    Two names may have the same hash. Then rows are sorted although they need not be, which gives the same results.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._met: Array = np.empty(0, np.int64)

    def add(self, table: pa.Table, differ: Array | None, following: Following | None) -> None:
        """Add the episodes that end in a run of rows; raise ScatteredError if one has ended before.

        ``differ``: True where a row and the next differ in a name, if that is known.
        """
        if not self._names:
            return
        columns = [whole(table[name]) for name in self._names]
        last = np.flatnonzero(changes(columns, len(table)) if differ is None else differ)
        if following is None or following.name != tuple(column[-1].as_py() for column in columns):
            last = np.append(last, len(table) - 1)
        rows = pa.array(last)
        every = np.concatenate([self._met, _hashes([column.take(rows) for column in columns])])
        every.sort(kind="stable")  # a merge, because the first part is sorted
        if (every[1:] == every[:-1]).any():
            raise ScatteredError(0, "the rows of an episode do not follow each other")
        self._met = every


class Files:
    """The files of all rows of a source. Its episodes have names, but no steps.

    Then nothing says whether an episode goes on in the next file, or whether every file counts its episodes from 0.
    """

    def __init__(self, pieces: Sequence[Piece], advice: str) -> None:
        self._advice = advice
        self._begins: list[int] = []  # the first row of every file
        self._paths: list[Path] = []
        row = 0
        for piece in pieces:
            if piece.first == 0:
                self._begins.append(row)
                self._paths.append(piece.path)
            row += piece.rows

    def check(self, rows: Array, steps: RecordedSteps, following: Following | None) -> int:
        """Raise if an episode goes on in another file. Return the number of the first row's file."""
        file = self.of(rows)
        after = np.append(file[1:], file[-1] if following is None else following.file)
        wrong = np.flatnonzero((file != after) & ~last_rows(steps, following))
        if len(wrong):
            raise RowError(
                int(wrong[0]),
                f"{self._paths[after[wrong[0]]]} goes on with the same episode, or with another one of the same name: "
                f"{self._advice}; or, if every file counts its episodes from 0, pass {argument('episode_is', 'file')}",
            )
        return int(file[0])

    def of(self, rows: Array) -> Array:
        """Return the numbers of the files of some rows."""
        numbers: Array = np.searchsorted(self._begins, rows, side="right") - 1
        return numbers


def _hashes(names: Sequence[pa.Array]) -> Array:
    hashes = np.zeros(len(names[0]), np.int64)
    for column in names:
        if pa.types.is_integer(column.type):
            items = column.to_numpy().astype(np.int64)
        else:
            items = np.fromiter(map(hash, column.to_pylist()), np.int64)
        hashes = hashes * ODD ^ items
    return hashes
