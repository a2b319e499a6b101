"""Allocate new arrays for results, in the memory of results that the caller has dropped.

Fresh memory costs a page fault for every 4 KiB. A training loop drops its results in every iteration, so the compiled
module keeps their memory for the next ones: csrc/recycled.hpp keeps it, and csrc/new_arrays.hpp makes arrays of it.
"""

import functools
import math
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from fastgae._call import Array

DEFAULT = 2**30  # bytes to keep if the caller names no limit; on a small machine,
SHARE = 16  # this part of its memory
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_core: ModuleType | None = None  # the compiled module, once it keeps memory
_least = sys.maxsize  # the fewest bytes of a result whose memory is recycled


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], order: Literal["C", "F"]) -> Array:
    """Return ``numpy.empty(shape, dtype, order)``."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _least or _core is None:
        return np.empty(shape, dtype, order)
    return np.ndarray(shape, dtype, _core.new_bytes(nbytes), order=order)


def empty_like(array: Array) -> Array:
    """Return ``numpy.empty_like(array)``."""
    if array.nbytes < _least:
        return np.empty_like(array)
    small = np.empty_like(array, shape=(2,) * array.ndim)  # has its axes in the same order, which NumPy chooses
    outermost_first = sorted(range(array.ndim), key=lambda axis: -small.strides[axis])
    result = empty(tuple(array.shape[axis] for axis in outermost_first), array.dtype, "C")
    return result.transpose(np.argsort(outermost_first))


def set_limit(limit: int) -> None:
    """Keep at most ``limit`` bytes of dropped results from now on; 0 empties the store and keeps nothing."""
    global _core, _least
    try:
        import fastgae._core as core

        core.set_recycled_limit(limit)
    except Exception:  # not built, or broken: the cpp backend reports that
        return
    _core, _least = core, core.least_recycled if limit else sys.maxsize


def recycled() -> dict[str, int]:
    """Return the limit, the bytes held, the hits and the misses; nothing without the compiled module."""
    counts: dict[str, int] = {} if _core is None else _core.recycled()
    return counts


def limit_from(source: str, text: str | None) -> int:
    """Return the limit that a setting names, such as 0 or 256MB, or the default if it is None."""
    if text is None:
        return min(DEFAULT, usable_memory() // SHARE)
    match = re.fullmatch(r"\s*(\d+)\s*(?:([KMGT])I?)?(B?)\s*", text.upper(), re.ASCII)
    if match is None or (int(match[1]) and not (match[2] or match[3])):
        raise ValueError(f"{source}={text!r} is not an amount of memory: expected one such as 256MB, or 0 for none")
    return min(int(match[1]) * UNITS[match[2] or ""], sys.maxsize)


def amount_of(text: str) -> int:
    """Return the bytes that a text such as 256MB names; 0 if it names none."""
    try:
        return limit_from("", text)
    except ValueError:
        return 0


@functools.cache
def usable_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its control group's if that is less."""
    try:
        amounts = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        amounts = [4 * DEFAULT]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2 of control groups, and version 1
        try:
            amounts.append(int(Path("/sys/fs/cgroup", file).read_text()))
        except (OSError, ValueError):  # "max" means no limit
            continue
    return min(amounts)
