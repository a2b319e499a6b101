"""What a call takes beside its arguments and outputs, at its peak, in bytes: exactly, and as the process grows.

NumPy and Python report what they allocate to tracemalloc; what C++ allocates shows only in the resident memory of the
process, a page at a time and where the kernel of the system tells (Linux with glibc).
"""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calls import Prepared
from rows import CASES, FRESH, Contender, case

SIZE = (1024, 4096)
ROWS = [
    *(case(name, *SIZE) for name in CASES),
    *(case(name, *SIZE, env_major=True) for name in ("plain", "mask")),
    case("plain", *SIZE, outputs=FRESH),
]


def peaks(ready: Prepared, contender: Contender) -> tuple[int, int | None]:
    """What NumPy and Python allocate, and by how much the process grows, both without new outputs."""
    call = ready.call(contender)
    outputs = sum(array.nbytes for array in ready.outputs) if ready.row.outputs == FRESH else 0
    traced, grown = traced_peak(call), resident_peak(call)
    return traced - outputs, None if grown is None else grown - outputs


def traced_peak(call: Callable[[], Any]) -> int:
    """Bytes that Python and NumPy allocate in a call, outputs included."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def resident_peak(call: Callable[[], Any]) -> int | None:
    """Bytes by which the process grows in a call, whoever allocates them; None where the system does not tell."""
    peak = Path("/proc/self/clear_refs")
    try:
        ctypes.CDLL(None).malloc_trim(0)  # or memory of earlier calls would be used again unseen
        before = resident("VmRSS")
        peak.write_text("5")  # the highest is now
    except (AttributeError, OSError, TypeError):
        return None
    result = call()
    highest = resident("VmHWM")
    del result
    return highest - before


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))
