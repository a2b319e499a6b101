"""Some shapes in some of the memory layouts of the fuzzer: the same numbers."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fuzz.layouts import laid

from .cases import Case


def poisoned(shape, dtype):
    """Return memory that must be neither read nor written: NaN, and True for flags."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 1, dtype)


def in_memory(layout):
    """Return the function that puts an array into memory as a layout of the fuzzer says."""
    return lambda array, time: laid(array, layout, time)


def byteswapped(array, time):
    swapped = (np.dtype(np.int16) if array.dtype == bool else array.dtype).newbyteorder("S")
    return array.astype(swapped)


def matrix(array):
    return array


def env_major(array):
    return array.T


def vector(array):
    return array[..., 0]


def cube(time_axis):
    def shape(array):
        split = array.reshape(*array.shape[:-1], 2, array.shape[-1] // 2)
        return np.moveaxis(split, 0, time_axis) if array.ndim == 2 else split

    return shape


@dataclass(frozen=True)
class Layout:
    name: str
    place: Callable
    shape: Callable = matrix
    time_axis: int = 0
    env_axes: int = 1

    def size(self, size):
        """Return the (T, N) of a case of about this size whose arrays have this layout's shape."""
        return size[0], size[1] * self.env_axes or 1

    def placed(self, name, array, time):
        place = MIXED[sum(map(ord, name)) % len(MIXED)] if self.place is mixed else self.place
        return place(array, time) if array.ndim else array.copy()

    def arranged(self, name, array):
        """Return the array in this layout, as the caller passes it."""
        shaped = self.shape(array)
        return self.placed(name, shaped, None if array.ndim == 1 else self.time_axis % shaped.ndim)

    def arguments(self, case: Case):
        """Return the keyword arguments of fastgae.gae in this layout, and the plain case with the same numbers."""
        given = case.mapped(self.arranged)
        plain = given.mapped(self.plain)
        arguments = given.arguments()
        if case.sparse:
            finals = arguments["final_values"][arguments["truncated"].astype(bool)]
            arguments["final_values"] = self.placed("final_values", finals, 0)
        return {**arguments, "time_axis": self.time_axis}, dataclasses.replace(plain, sparse=False)

    def plain(self, name, array):
        """Return the caller's array as (T, N), or as a row (N,): C-contiguous and in native byte order."""
        native = np.dtype(bool) if name in ("terminated", "truncated") else array.dtype.newbyteorder("=")
        if name != "last_values":
            array = np.moveaxis(array, self.time_axis, 0) if self.time_axis else array  # it takes long
            return np.array(array.reshape(array.shape[0], -1), native, order="C")
        return np.array(array.reshape(-1), native)


def mixed(array, time):
    raise NotImplementedError("Layout.placed chooses one of MIXED by the name of the array")


MIXED = (*map(in_memory, ("c", "fortran", "sliced", "time backwards", "unaligned")), byteswapped, in_memory("padded"))

LAYOUTS = [
    Layout("c", in_memory("c")),
    Layout("sliced", in_memory("sliced")),
    Layout("mixed", mixed),
    Layout("env_major", in_memory("c"), env_major, 1),
    Layout("env_major_padded", in_memory("padded"), env_major, -1),
    Layout("vector", in_memory("c"), vector, env_axes=0),
    Layout("cube_time_1", in_memory("c"), cube(1), 1, env_axes=2),
]


def named(*names):
    return [layout for layout in LAYOUTS if layout.name in names]
