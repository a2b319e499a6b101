"""HDF5 files with a group of arrays for each episode, as Minari and robomimic write them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import Arrays, column_of, each_array
from fastgae.data.errors import DataError, reading
from fastgae.data.pieces import Piece, slices
from fastgae.data.stored import Stored, file_of, table_of


class Groups(NamedTuple):
    """The groups of episodes in a file."""

    name: str  # of a group, up to its number
    key: str  # the column of that number
    longer: Collection[str]  # the arrays that may have one row more: the state after the last step
    example: str

    def numbers(self, path: Path) -> list[int]:
        """Return the numbers of the episodes of a file in their order."""
        *above, name = self.name.split("/")
        with reading(path):
            group = file_of(path)
            for each in above:
                group = group.get(each, {})
            return sorted(int(match[1]) for match in map(re.compile(rf"{name}(\d+)").fullmatch, group) if match)

    def pieces(self, path: Path) -> list[Piece]:
        """Return the rows of all episodes of a file, in the order of their numbers."""
        if not (numbers := self.numbers(path)):
            raise DataError(f"{path} has no groups {self.name}0, {self.name}1 …, which {self.example} writes")
        stored = [self._episode(path, number) for number in numbers]
        firsts = list(accumulate((episode.rows for episode in stored), initial=0))
        schema = stored[0].schema()
        read = Episodes(stored, firsts, schema).read
        return [
            piece
            for episode, first in zip(stored, firsts, strict=False)
            for piece in slices(path, first, episode.rows, schema, read, episode.final if self.longer else None)
        ]

    def _episode(self, path: Path, number: int) -> Stored:
        return Stored.of(path, f"{self.name}{number}", self.longer, partial(keys_of, self.key, number))


def keys_of(key: str, episode: int, start: int, stop: int) -> Mapping[str, Array]:
    """Return the columns of steps start … stop - 1 of an episode, for which the place of a row stands."""
    return {key: np.full(stop - start, episode), "step": np.arange(start, stop)}


class Episodes(NamedTuple):
    """The episodes of an HDF5 file, as rows of one table."""

    stored: Sequence[Stored]
    firsts: Sequence[int]  # the first row of each, and the number of all rows
    schema: pa.Schema  # of the first one, and so of all

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        parts = {}
        for number in range(bisect_right(self.firsts, start) - 1, bisect_left(self.firsts, stop)):
            episode, first = self.stored[number], self.firsts[number]
            parts[number] = episode.arrays(max(start - first, 0), min(stop - first, episode.rows), columns)
        return table_of(
            {name: self._joined(name, {at: part.pop(name) for at, part in parts.items()}) for name in columns}
        )

    def _joined(self, name: str, parts: Mapping[int, Arrays]) -> Arrays:
        """Return the rows of some episodes, which must have one type, as one array or one for each field."""
        one_of_each = {_kind(part): number for number, part in parts.items()}
        for number in one_of_each.values():
            kind, expected = column_of(parts[number]).type, self.schema.field(name).type
            if kind != expected:
                first = self.stored[0].group
                raise DataError(f"{self.stored[number].where}: {name} holds {kind}, and in {first} {expected}")
        return each_array(lambda *arrays: np.concatenate(arrays), *parts.values())


def _kind(arrays: Arrays) -> tuple[Any, ...]:
    """Return the dtype of an array and the shape of its rows, or the fields of a dict."""
    if isinstance(arrays, dict):
        return tuple((name, _kind(part)) for name, part in arrays.items())
    return arrays.dtype, *arrays.shape[1:]
