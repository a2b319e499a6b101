"""Call every row on every target under callgrind, which writes a file for each, and print what the calls were.

The first argument is the library made of counted.c. A line of JSON for each row and target has the bytecodes of
fastgae's own Python code in one call; or none, and no file, where this fastgae does not know an argument of the row.
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import fastgae
from fastgae import _core
from speed.calls import prepared
from speed.contenders import one_thread
from speed.rows import Row
from speed.table import COUNTED, COUNTED_BY_DEFAULT

CPU_TARGETS = ("avx512", "avx2", "baseline")  # best first
CALLS, WARM = 3, 10  # Python adapts its bytecode to the types that it has met
PACKAGE = str(Path(fastgae.__file__).parent)


def main() -> None:
    marks = ctypes.CDLL(sys.argv[1])
    gc.disable()
    with suppress(AttributeError):  # an older fastgae, which did not measure
        _core.prefetch_into(2)  # large calls measure times, and other ways take other instructions
    for row, name in pairs():
        call, entry = prepared(row).call(one_thread([name])[0]), {"row": row.name, "target": name}
        try:
            call()
        except TypeError:
            print(json.dumps(entry), flush=True)
            continue
        for _ in range(WARM - 1):
            call()
        entry |= {"calls": CALLS, "bytecodes": bytecodes(call)}
        marks.begin()
        for _ in range(CALLS):
            call()
        marks.end()
        print(json.dumps(entry), flush=True)


def pairs() -> Iterator[tuple[Row, str]]:
    yield from ((row, "cpp") for row in COUNTED_BY_DEFAULT)
    yield from ((row, name) for row in COUNTED for name in cpp_targets())


def cpp_targets() -> list[str]:
    """Return the CPU targets that run here. ``fastgae.backends()`` would name them too, but loads Numba."""
    names = []
    for target in CPU_TARGETS:
        with suppress(fastgae.BackendUnavailableError):
            fastgae.gae([0.0], [0.0, 0.0], [False], backend=f"cpp:{target}")
            names.append(f"cpp:{target}")
    return names


def bytecodes(call: Callable[[], Any]) -> int:
    """Return how many bytecodes of fastgae's own code a call runs; they depend on Python's minor version alone."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes = True
            return trace if frame.f_code.co_filename.startswith(PACKAGE) else None
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


if __name__ == "__main__":
    main()
