"""The one list of memory layouts, and the one function that says where the elements of an array lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Place:
    """Where the elements of one array lie in its memory."""

    order: tuple[int, ...]  # the axes, outermost first
    gaps: tuple[int, ...]  # for each axis, how many unused elements lie between two neighbours
    backwards: tuple[bool, ...]  # for each axis
    shift: int = 0  # bytes by which the array is out of alignment
    at_end: bool = True  # the array ends where its memory ends; otherwise it begins where its memory begins

    def strides(self, shape: Sequence[int], itemsize: int) -> list[int]:
        strides, apart = [0] * len(shape), itemsize
        for axis in reversed(self.order):
            apart += self.gaps[axis] * itemsize
            strides[axis] = -apart if self.backwards[axis] else apart
            apart *= max(shape[axis], 1)
        return strides


@dataclass(frozen=True)
class Layout:
    """A layout for arrays of any rank."""

    name: str
    order: str = "C"  # or "F", or "rotated": the outermost axis becomes the innermost one
    gaps: tuple[int, int] = (0, 0)  # unused elements between neighbours along the innermost axis, and along the others
    backwards: str = ""  # or "time", "envs" or "time and envs"
    shift: int = 0

    def place(self, ndim: int, time: int | None, at_end: bool = True) -> Place:
        """Return the place of an array with so many axes, of which ``time`` is that of time, if it has one."""
        axes = tuple(range(ndim))
        order = {"C": axes, "F": axes[::-1], "rotated": (*axes[1:], *axes[:1])}[self.order]
        gaps = tuple(self.gaps[axis != order[-1]] for axis in axes)
        backwards = tuple(("time" if axis == time else "envs") in self.backwards for axis in axes)
        return Place(order, gaps, backwards, self.shift, at_end)


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("c"),
        Layout("fortran", "F"),
        Layout("rotated", "rotated"),
        Layout("padded", gaps=(0, 3)),
        Layout("padded fortran", "F", (0, 3)),
        Layout("sliced", gaps=(1, 1)),
        Layout("sliced fortran", "F", (1, 0)),
        Layout("far apart", gaps=(16, 1)),
        Layout("time backwards", backwards="time"),
        Layout("envs backwards", backwards="envs"),
        Layout("backwards", backwards="time and envs"),
        Layout("time backwards, fortran", "F", backwards="time"),
        Layout("sliced backwards", gaps=(1, 3), backwards="time and envs"),
        Layout("unaligned", shift=1),
        Layout("half aligned", shift=4),
        Layout("unaligned backwards, fortran", "F", (0, 1), "envs", 2),
    )
}


def view_in(memory: np.ndarray, plain: np.ndarray, place: Place) -> np.ndarray:
    """Return an array with these elements in this place of some bytes. Axes of stride 0 in ``plain`` stay broadcast."""
    repeated = [stride == 0 and n > 1 for stride, n in zip(plain.strides, plain.shape, strict=True)]
    shape = [1 if again else n for again, n in zip(repeated, plain.shape, strict=True)]
    strides = place.strides(shape, plain.itemsize)
    reach = [max(n - 1, 0) * stride if plain.size else 0 for n, stride in zip(shape, strides, strict=True)]
    extent = sum(map(abs, reach)) + plain.itemsize if plain.size else 0
    begin = len(memory) - extent - place.shift if place.at_end else place.shift
    first = begin - sum(step for step in reach if step < 0)
    view: np.ndarray = np.ndarray(shape, plain.dtype, memory, first, strides)
    view[...] = plain[tuple(slice(0, 1) if again else slice(None) for again in repeated)]
    spread = [0 if again else stride for again, stride in zip(repeated, strides, strict=True)]
    return np.ndarray(plain.shape, plain.dtype, memory, first, spread)


def bytes_of(plain: np.ndarray, place: Place) -> int:
    """Return how many bytes an array takes in its place."""
    strides = place.strides(plain.shape, plain.itemsize)
    return sum(abs(s) * max(n - 1, 0) for s, n in zip(strides, plain.shape, strict=True)) + plain.itemsize + place.shift


def laid(plain: Any, layout: str | Layout = "c", time: int | None = 0) -> np.ndarray:
    """Return an array with the elements of another one in new memory, in a layout. What lies between them is NaN."""
    plain = np.asarray(plain)
    found = LAYOUTS[layout] if isinstance(layout, str) else layout
    place = found.place(plain.ndim, time, at_end=False)
    return view_in(np.full(bytes_of(plain, place), 0xFF, np.uint8), plain, place)
