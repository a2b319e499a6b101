"""Read an HDF5 file with h5py's low-level functions.

Minari writes some arrays for each episode, and h5py's high-level functions take 0.1 ms for every array.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5s, h5t

from fastgae._call import Array

# The types of arrays that were met in a file: as the file has it, NumPy's, and the file's own that NumPy's is read as.
Types: TypeAlias = list[tuple[Any, np.dtype[Any], Any]]


class Hdf5Array:
    """An array of a file. A slice of it is a NumPy array."""

    def __init__(self, dataset: Any, types: Types) -> None:
        self._dataset, self._types = dataset, types
        self.shape: tuple[int, ...] | None = dataset.shape  # None: HDF5's "empty"

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(len(self))
        dtype, memory = self._type
        _, *row = self.shape or ()
        array = np.empty((stop - start, *row), dtype)
        if array.shape == self.shape:
            self._dataset.read(h5s.ALL, h5s.ALL, array, memory)
        elif array.size:
            chosen = self._dataset.get_space()
            chosen.select_hyperslab((start, *[0] * len(row)), array.shape)
            self._dataset.read(h5s.create_simple(array.shape), chosen, array, memory)
        return array

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._type[0]

    @cached_property
    def _type(self) -> tuple[np.dtype[Any], Any]:
        """Return the dtype and HDF5's type for it, from an earlier array if possible: h5py creates them slowly."""
        stored = self._dataset.get_type()
        for known, dtype, memory in self._types:
            if stored.equal(known):
                return dtype, memory
        dtype = self._dataset.dtype
        memory = h5t.py_create(dtype)
        self._types.append((stored, dtype, memory))
        return dtype, memory


class Hdf5Group(Mapping[str, Any]):
    """The arrays and groups of a group by their names."""

    def __init__(self, group: Any, types: Types) -> None:
        self._group, self._types = group, types

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode(errors="surrogateescape") in self._group

    def __getitem__(self, name: str) -> Any:
        found = h5o.open(self._group, name.encode(errors="surrogateescape"))
        if isinstance(found, h5d.DatasetID):
            return Hdf5Array(found, self._types)
        if isinstance(found, h5g.GroupID):
            return Hdf5Group(found, self._types)
        raise KeyError(name)  # a type, which holds no numbers

    def __iter__(self) -> Iterator[str]:
        return (name.decode(errors="surrogateescape") for name in self._group)

    def __len__(self) -> int:
        return len(self._group)


class Hdf5File(Hdf5Group):
    """The arrays and groups of a file, and its attributes."""

    def __init__(self, path: Path) -> None:
        file = h5py.File(path, "r")
        super().__init__(file.id, [])
        self.attributes, self.close = file.attrs, file.close
