"""Run every row on every target in three processes that differ in the number of calls; cachegrind counts each.

The processes are forked from one that has imported and warmed up everything, and each leaves a count under its process
id. One line of JSON per row and target names the processes.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fastgae
from speed.calls import prepared
from speed.contenders import one_thread
from speed.rows import FRESH, case
from speed.table import CACHED, COUNTED, COUNTED_REFERENCE

CPU_TARGETS = ("avx512", "avx2", "baseline")  # best first
FEW = 2
# Sizes and numbers of blocks that fill the holes of the heap, so that a call always allocates above its arguments. The
# place of its arrays decides how long malloc searches, and how soon a call sees that two arrays do not overlap.
FILLING = ((1024, 4000), (4096, 2000), (16384, 500), (65536, 200))
# These rows are also counted without naming a CPU target.
BY_ITSELF = [row for row, _ in COUNTED if row.outputs == FRESH or row == case("plain", *CACHED)]


def main() -> None:
    targets = cpp_targets()
    pairs = [(row, more, name) for row, more in COUNTED for name in (["cpp"] if row in BY_ITSELF else []) + targets]
    for row, more, name in [*pairs, (*COUNTED_REFERENCE, "numpy")]:
        call = prepared(row).call(one_thread([name])[0])
        for _ in range(2 * more):  # Python adapts its bytecode to the types that it has met
            call()
        processes = [forked(call, FEW + times * more) for times in range(3)]
        print(json.dumps({"row": row.name, "target": name, "processes": processes, "calls": more}), flush=True)


def cpp_targets() -> list[str]:
    """Return the CPU targets that run here. ``fastgae.backends()`` would name them too, but loads Numba."""
    names = []
    for target in CPU_TARGETS:
        with suppress(fastgae.BackendUnavailableError):
            fastgae.gae([0.0], [0.0, 0.0], [False], backend=f"cpp:{target}")
            names.append(f"cpp:{target}")
    return names


def forked(call: Callable[[], Any], count: int) -> int:
    process = os.fork()
    if process == 0:
        gc.disable()
        kept = [bytes(size) for size, number in FILLING for _ in range(number)]
        for _ in range(count):
            call()
        del kept
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if status:
        sys.exit(f"a counted process ended with status {status}")
    return process


if __name__ == "__main__":
    main()
