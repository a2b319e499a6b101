"""Read named arrays of a file in which any rows can be read: the arrays of an .npz or HDF5 file or group."""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastgae._archive import NUMBERS
from fastgae._call import Array
from fastgae.data.arrays import Arrays, check_numbers, column_of
from fastgae.data.errors import DataError, reading
from fastgae.data.extras import brought_by
from fastgae.data.kinds import HDF5, NPY, NPZ, kind_of
from fastgae.data.npz import NpyFolder, NpzFile, npy_files
from fastgae.data.pieces import Piece, checked_time, opened, slices
from fastgae.data.urls import version_of

# Makes columns that no array holds, for the rows start … stop - 1.
Keys = Callable[[int, int], Mapping[str, Array]]


def hdf5_file(path: Path) -> Any:
    """Return the open file, whose items are arrays and groups of them."""
    with brought_by("hdf5", f"reading {path}"):
        from fastgae.data.hdf5 import Hdf5File
    return Hdf5File(path)


OPENERS: dict[str, Callable[[Path], Any]] = {HDF5: hdf5_file, NPZ: NpzFile, NPY: NpyFolder}


def file_of(path: Path, since: Any = None) -> Any:
    """Return the open file; raise if it has changed since then."""
    since = version_of(path)[1] if since is None else checked_time(path, since)
    return opened(_opened, path, since)


def _opened(path: Path) -> Any:
    return OPENERS[kind_of(path)](path)


class Stored(NamedTuple):
    """Arrays of one length in a file, and columns that are made in addition."""

    path: Path
    since: Any
    group: str  # "" for the file itself
    rows: int
    longer: Collection[str]  # the arrays that may have one more row: the state after the last step
    keys: Keys

    @classmethod
    def of(cls, path: Path, group: str = "", longer: Collection[str] = (), keys: Keys = lambda *_: {}) -> "Stored":
        """Return the arrays of a group, which are as long as the rewards or, without rewards, as most of the arrays."""
        unmeasured = cls(path, version_of(path)[1], group, 0, longer, keys)
        items = unmeasured.items()
        lengths = [_length(items["rewards"])] if "rewards" in items else list(map(_length, items.values()))
        rows = statistics.mode([length for length in lengths if length is not None] or [None])
        if rows is None:
            raise DataError(f"{unmeasured.where}: rewards is not an array with one number for each step")
        return unmeasured._replace(rows=rows)

    def items(self) -> Mapping[str, Any]:
        """Return all arrays, and groups of them."""
        file = file_of(self.path, self.since)
        items: Mapping[str, Any] = reduce(lambda group, name: group[name], filter(None, self.group.split("/")), file)
        return items

    @property
    def where(self) -> str:
        return f"{self.path}: {self.group}" if self.group else str(self.path)

    def pieces(self) -> list[Piece]:
        """Return all rows."""
        return slices(self.path, 0, self.rows, self.schema(), self.read, self.final if self.longer else None)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        return table_of(self.arrays(start, stop, columns))

    def arrays(self, start: int, stop: int, columns: Sequence[str]) -> dict[str, Arrays]:
        """Return rows of the arrays of these names."""
        made = self.keys(start, stop)
        lengths = {name: [self.rows, self.rows + (name in self.longer)] for name in columns if name not in made}
        stored = self._arrays(start, stop, lengths)
        return {name: made[name] if name in made else stored[name] for name in columns}

    def final(self, columns: Sequence[str]) -> pa.Table:
        """Return the last row of each longer array: the state after the last step."""
        return table_of(self._arrays(self.rows, self.rows + 1, {name: [self.rows + 1] for name in columns}))

    def schema(self) -> pa.Schema:
        """Return the columns that hold numbers."""
        fields = [(name, pa.array(key).type) for name, key in self.keys(0, 1).items()]
        for name, item in self.items().items():
            if _length(item) in (self.rows, self.rows + 1):
                with suppress(TypeError):
                    fields.append((name, _type(item)))
        return pa.schema(fields)

    def _arrays(self, start: int, stop: int, lengths: Mapping[str, Collection[int]]) -> dict[str, Arrays]:
        """Return rows of the arrays of these names, each of which must have one of its lengths."""
        with reading(self.path):
            items = self.items()  # HDF5 takes long to look up a name, in a group and in the file
            return {name: self._array(items, name, start, stop, lengths[name]) for name in lengths}

    def _array(self, items: Mapping[str, Any], name: str, start: int, stop: int, lengths: Collection[int]) -> Arrays:
        try:
            item = items[name]
        except KeyError:
            there = ", ".join(items) or "no arrays"
            raise DataError(f"{self.where} has no {name}; there are {there}") from None
        if (length := _length(item)) not in lengths:
            has = "no rows" if length is None else f"{length:,} rows"
            raise DataError(f"{self.where}: {name} has {has}; expected {max(lengths):,}, for {self.rows:,} rewards")
        try:
            return _rows_of(item, start, stop)
        except TypeError as error:
            raise DataError(f"{self.where}: {name} cannot be read: {error}") from error


def flat(path: Path) -> Stored:
    """Return the arrays of a whole file, with the keys that follow from ``episode_ends`` if the file has it."""
    arrays = Stored.of(path)
    items, rows = arrays.items(), arrays.rows
    if "values" in items and _length(items["values"]) == rows + 1:
        arrays = arrays._replace(longer=("values",))
    if "episode_ends" in items:
        arrays = arrays._replace(keys=_episode_keys(path, items["episode_ends"][:], rows))
    return arrays


def _episode_keys(path: Path, ends: Array, rows: int) -> Keys:
    """Return the function that makes the keys of rows; ``ends``: for each episode, the index of the row after it."""
    rises = ends.ndim == 1 and ends.dtype.kind in "iu" and len(ends) and ends[0] > 0 and (ends[1:] > ends[:-1]).all()
    if not (rises and ends[-1] == rows):
        raise DataError(f"{path}: episode_ends must be integers that rise to {rows}, the number of rewards")

    def keys(start: int, stop: int) -> Mapping[str, Array]:
        row = np.arange(start, stop)
        episode = np.searchsorted(ends, row, side="right")
        return {"episode": episode, "step": row - np.concatenate([[0], ends])[episode].astype(np.int64)}

    return keys


def npy_pieces(path: Path) -> list[Piece]:
    """Return the rows of all .npy files in a folder as rows of the first file, and no rows for the other files."""
    return flat(path).pieces() if path == npy_files(path)[0] else []


def _length(item: Any) -> int | None:
    """Return the number of rows of an array; None for a number, and for a group whose arrays have different lengths."""
    if isinstance(item, Mapping):
        lengths = set(map(_length, item.values()))
        return lengths.pop() if len(lengths) == 1 else None
    return len(item) if item.shape else None


def _type(item: Any) -> pa.DataType:
    """Return the type of the column; raise TypeError if it does not hold numbers."""
    if isinstance(item, Mapping):
        return pa.struct([(name, _type(part)) for name, part in _numbers(item).items()])
    return column_of(np.zeros((1, *item.shape[1:]), item.dtype)).type


def _rows_of(item: Any, start: int, stop: int) -> Arrays:
    """Return rows of an array, or of each array of a group; raise TypeError if they do not hold numbers."""
    if isinstance(item, Mapping):
        return {name: _rows_of(part, start, stop) for name, part in _numbers(item).items()}
    check_numbers(item.dtype)
    return item[start:stop]


def _numbers(items: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members of a group that hold numbers; raise TypeError if none does."""
    if found := {name: item for name, item in items.items() if _holds_numbers(item)}:
        return found
    raise TypeError(f"the group of {', '.join(items) or 'no arrays'} holds no numbers")


def _holds_numbers(item: Any) -> bool:
    return any(map(_holds_numbers, item.values())) if isinstance(item, Mapping) else item.dtype.kind in NUMBERS


def table_of(columns: Mapping[str, Arrays]) -> pa.Table:
    """Return a table with these columns."""
    return pa.table({name: column_of(arrays) for name, arrays in columns.items()})
