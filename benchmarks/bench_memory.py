"""What a call takes beside its arguments and outputs, at its peak, in bytes: exactly, and as the process grows.

NumPy and Python report what they allocate to tracemalloc; what C++ allocates shows only in the resident memory of the
process, a page at a time and where the kernel of the system tells (Linux with glibc).
"""

import ctypes
import gc
import tracemalloc
from pathlib import Path
from typing import Any

from calls import one_thread, prepared, runs_here
from rows import CASES, FRESH, Contender, Row, case

SIZE = (1024, 4096)
# Small objects, code that Numba looks up, stacks of threads, rows or columns, and one huge page more or less.
FIXED = 3 * 1024 * 1024
# And then per step; what is not named here takes nothing that grows with the rollout.
PER_STEP = {
    ("cpp", "packed"): 2.1,  # two flags
    ("cpp", "normalize"): 0.2,  # sums of blocks of steps
    ("numba", "packed"): 6.2,  # and the bootstraps of sequences
    ("numba", "normalize"): 0.2,
    ("numba", "final_values"): 4.1,  # sparse ones, spread out
}

ROWS = [
    *(case(name, *SIZE) for name in CASES),
    *(case(name, *SIZE, env_major=True) for name in ("plain", "mask")),
    case("plain", *SIZE, outputs=FRESH),
]
CONTENDERS = one_thread([name for name in runs_here() if name != "numpy"])  # the reference takes what it likes


def test_memory(row: Row, contender: Contender, report_memory: Any) -> None:
    ready = prepared(row)
    assert ready.right(contender)
    call = ready.call(contender)
    outputs = sum(array.nbytes for array in ready.outputs) if row.outputs == FRESH else 0
    traced, resident = traced_peak(call) - outputs, resident_peak(call)
    if resident is not None:
        resident -= outputs
    report_memory(row.name, contender.name, traced, resident)
    allowed = PER_STEP.get((contender.backend, row.group), 0) * row.steps * row.envs + FIXED
    assert max(traced, resident or 0) <= allowed


def traced_peak(call: Any) -> int:
    """Bytes that Python and NumPy allocate in a call, outputs included."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def resident_peak(call: Any) -> int | None:
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
