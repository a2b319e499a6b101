"""The memory that a call needs at its peak beside its arguments and outputs, in bytes.

NumPy and Python report their allocations to tracemalloc. The allocations of C++ show only in the resident memory of the
process, in whole pages, and only on Linux with glibc.
"""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastgae._support import memory

from .caches import from_proc
from .calls import Prepared
from .contenders import Contender
from .rows import FRESH


def bytes_per_step(ready: Prepared, contender: Contender) -> float:
    """Return what NumPy and Python allocate, or what the process grows by if that is more, new outputs left out."""
    call = ready.call(contender)
    outputs = sum(array.nbytes for array in ready.outputs) if ready.row.outputs == FRESH else 0
    return max(0, max(traced_peak(call), resident_peak(call) or 0) - outputs) / ready.row.size


@contextmanager
def nothing_recycled() -> Iterator[None]:
    """Let NumPy allocate all results: it does not report recycled memory, and the process does not grow by it."""
    limit = memory.recycled().get("limit", 0)
    memory.set_limit(0)
    try:
        yield
    finally:
        memory.set_limit(limit)


def traced_peak(call: Callable[[], Any]) -> int:
    """Return the bytes that Python and NumPy allocate in a call, outputs included."""
    with nothing_recycled():
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            call()
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()


def resident_peak(call: Callable[[], Any]) -> int | None:
    """Return the bytes that the process grows by in a call, or None where the system does not tell."""
    peak = Path("/proc/self/clear_refs")
    with nothing_recycled():
        try:
            ctypes.CDLL(None).malloc_trim(0)  # else the call reuses freed memory, and the process does not grow
            before = resident("VmRSS")
            peak.write_text("5")  # restart the record of the highest use
        except (AttributeError, OSError, TypeError):
            return None
        result = call()
        highest = resident("VmHWM")
        del result
        return highest - before


def resident(name: str) -> int:
    return 1024 * int(from_proc("self/status", name).split()[0])
