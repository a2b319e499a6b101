"""Read an HDF5 file with h5py's low-level functions, and no other file that it may point to.

Minari writes some arrays for each episode, and h5py's high-level functions take 0.1 ms for every array.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from h5py import h5d, h5g, h5i, h5l, h5o, h5s, h5t

from fastgae._call import Array
from fastgae.data.errors import DataError
from fastgae.data.urls import is_remote, opened_binary

MOST_LINKS = 16  # one after the other, as in HDF5; more are a circle

# The types of arrays that were met in a file: as the file has it, NumPy's, and the file's own that NumPy's is read as.
Types: TypeAlias = list[tuple[Any, np.dtype[Any], Any]]


@contextmanager
def undamaged(place: str) -> Iterator[None]:
    """Name the place in h5py's errors of a damaged file, which are of many kinds."""
    try:
        yield
    except DataError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{place} cannot be read: {error}") from error


class Hdf5Array:
    """An array of a file. A slice of it is a NumPy array."""

    def __init__(self, dataset: Any, types: Types, place: str) -> None:
        self._dataset, self._types, self._place = dataset, types, place
        self.shape: tuple[int, ...] | None = dataset.shape  # None: HDF5's "empty"

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, rows: slice) -> Array:
        with undamaged(self._place):
            return self._read(*rows.indices(len(self))[:2])

    def _read(self, start: int, stop: int) -> Array:
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
        with undamaged(self._place):
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

    def __init__(self, group: Any, types: Types, place: str, above: Collection[int] = ()) -> None:
        """``place``: what to write before a name in errors; ``above``: the addresses of the groups around this one."""
        self._group, self._types, self._place = group, types, place
        with undamaged(place[:-1]):
            address = h5o.get_info(group).addr
        if address in above:
            raise DataError(f"{place[:-1]} is a link to a group around it: remove the link")
        self._above = {*above, address}

    def __contains__(self, name: object) -> bool:
        with undamaged(self._place[:-1]):
            return isinstance(name, str) and name.encode(errors="surrogateescape") in self._group

    def __getitem__(self, name: str) -> Any:
        place, encoded = f"{self._place}{name}", name.encode(errors="surrogateescape")
        try:
            with undamaged(place):
                found = self._found(encoded)
                if isinstance(found, h5d.DatasetID):
                    _check_own(found, place)
        except DataError as error:
            with undamaged(place):
                if self._group.links.exists(encoded):
                    raise
            raise KeyError(name) from error
        if isinstance(found, h5d.DatasetID):
            return Hdf5Array(found, self._types, place)
        if not isinstance(found, h5g.GroupID):
            return {}  # a type, which holds no arrays
        return Hdf5Group(found, self._types, f"{place}/", self._above)

    def _found(self, name: bytes) -> Any:
        """Open what has a name; raise if that is a link which leads to nothing in this file."""
        link = self._group.links.get_info(name).type
        if link == h5l.TYPE_HARD:
            return h5o.open(self._group, name)
        target = self._group.links.get_val(name)  # of an external link: its file and the name there
        if link == h5l.TYPE_SOFT:
            with suppress(AttributeError, KeyError, RuntimeError):
                return _followed(self._group, target)
        names = [target] if link == h5l.TYPE_SOFT else reversed(target)
        leads = " in ".join(part.decode(errors="replace") for part in names)
        raise DataError(
            f"{self._place}{name.decode(errors='replace')} is a link to {leads}, and leads to nothing in this file: "
            "copy the numbers into it"
        )

    def __iter__(self) -> Iterator[str]:
        with undamaged(self._place[:-1]):
            return iter([name.decode(errors="surrogateescape") for name in self._group])

    def __len__(self) -> int:
        with undamaged(self._place[:-1]):
            return len(self._group)


class Hdf5File(Hdf5Group):
    """The arrays and groups of a file, and its attributes."""

    def __init__(self, path: Path) -> None:
        file = h5py.File(opened_binary(path, "blockcache") if is_remote(path) else path, "r")
        super().__init__(file.id, [], f"{path}: ")
        self.attributes, self.close = file.attrs, file.close


def _followed(group: Any, path: bytes, links: int = 1) -> Any:
    """Open what a soft link leads to in this file. HDF5 would also follow it to other files."""
    found = h5i.get_file_id(group) if path.startswith(b"/") else group
    for name in (part for part in path.split(b"/") if part not in (b"", b".")):
        link = found.links.get_info(name).type
        if link == h5l.TYPE_HARD:
            found = h5o.open(found, name)
        elif link == h5l.TYPE_SOFT and links < MOST_LINKS:
            found = _followed(found, found.links.get_val(name), links + 1)
        else:
            raise KeyError(path)
    return found


def _check_own(dataset: Any, place: str) -> None:
    """Raise if the numbers of an array lie in other files, which may be missing or no HDF5 files at all."""
    if dataset.get_offset() is not None:  # they lie here, in one piece
        return
    stored = dataset.get_create_plist()
    if stored.get_layout() == h5d.VIRTUAL:
        others = set(map(stored.get_virtual_filename, range(stored.get_virtual_count())))
    else:
        external = map(stored.get_external, range(stored.get_external_count()))
        others = {name.decode(errors="replace") for name, *_ in external}
    if others:
        raise DataError(f"{place} holds no numbers itself, they are in {', '.join(sorted(others))}: copy them into it")
