"""Find episodes whose rows do not follow each other."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.columns import changes
from fastgae.data.steps import Following, ScatteredError


class Episodes:
    """The episodes that were met, as hashes of their names: eight bytes for each.

    Two names may have one hash. Then rows are sorted although they need not be, which gives the same results.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._met: Array = np.empty(0, np.int64)

    def add(self, table: pa.Table, following: Following | None) -> None:
        """Add the episodes that end in a run of rows; raise ScatteredError if one has ended before."""
        if not self._names:
            return
        columns = [table[name].combine_chunks() for name in self._names]
        last = np.append(changes(columns, len(table)), True)
        if following is not None and following.name == tuple(column[-1].as_py() for column in columns):
            last[-1] = False
        ended = [column.filter(pa.array(last)).to_pylist() for column in columns]
        hashes = np.fromiter(map(hash, zip(*ended, strict=True)), np.int64)
        every = np.concatenate([self._met, hashes])
        every.sort(kind="stable")  # a merge, because the first part is sorted
        if (every[1:] == every[:-1]).any():
            raise ScatteredError(0, "the rows of an episode do not follow each other")
        self._met = every
