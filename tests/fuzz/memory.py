"""Memory between two guard pages, which end the process when touched, and the arrays of one call in it."""

import ctypes
import ctypes.util
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .layouts import Place, bytes_of, view_in

PAGE = mmap.PAGESIZE
POISON = 0xFF  # NaN in every type of number, and a flag that is neither 0 nor 1


class Pages:
    """Blocks of memory between two guard pages. Blocks that are given back are used again."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}

    def take(self, size: int) -> np.ndarray:
        """Return whole pages, at least ``size`` bytes, filled with poison."""
        pages = 1 << max(0, -(-max(size, 1) // PAGE) - 1).bit_length()
        free = self._free.setdefault(pages, [])
        block = free.pop() if free else _guarded(pages * PAGE)
        block.fill(POISON)
        return block

    def give_back(self, block: np.ndarray) -> None:
        self._free[len(block) // PAGE].append(block)


def _guarded(size: int) -> np.ndarray:
    if sys.platform == "win32":  # no guards there: ``Arena.changed`` still sees writes beside an array
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True).mprotect
    for guard in (0, PAGE + size):
        if protect(ctypes.c_void_p(whole.ctypes.data + guard), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return whole[PAGE : PAGE + size]


class Arena:
    """Make the arrays of one call in guarded memory, compare the memory after the call, and give it back."""

    def __init__(self, pages: Pages):
        self._pages = pages
        self._blocks: list[tuple[np.ndarray, np.ndarray, bytes]] = []  # memory, array, the bytes before the call

    def array(self, plain: np.ndarray, place: Place) -> np.ndarray:
        """Return an array with these elements in this place."""
        block = self._pages.take(bytes_of(plain, place))
        array = view_in(block, plain, place)
        self._blocks.append((block, array, block.tobytes()))
        return array

    def shared(self, memory: np.ndarray, *places: tuple[tuple[int, ...], Any, int]) -> tuple[np.ndarray, ...]:
        """Return arrays, each of a shape and a dtype and at some byte, in these bytes; the first may be written."""
        block = self._pages.take(len(memory))
        block[: len(memory)] = memory
        arrays = tuple(np.ndarray(shape, dtype, block, begin) for shape, dtype, begin in places)
        self._blocks.append((block, arrays[0], block.tobytes()))
        return arrays

    def changed(self, written: Sequence[Any] = ()) -> str | None:
        """Say what was changed other than the elements of ``written``, which must be arrays of this arena."""
        for block, array, before in self._blocks:
            if any(array is output for output in written):
                now = block.copy()
                offset = array.__array_interface__["data"][0] - block.__array_interface__["data"][0]
                raw: Any = np.ndarray(array.shape, f"V{array.itemsize}", now, offset, array.strides)
                raw[...] = np.ndarray(array.shape, f"V{array.itemsize}", before, offset, array.strides)
                if now.tobytes() != before:
                    return "bytes between the elements of out were written"
            elif block.tobytes() != before:
                return "an array that is no output was written to"
        return None

    def close(self) -> None:
        for block, _, _ in self._blocks:
            self._pages.give_back(block)
        self._blocks.clear()
