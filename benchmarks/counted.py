"""Runs under cachegrind: every row on every target in two processes of its own that differ in the number of calls.

They are forked from one that has everything imported and warm, and each leaves a count under its process id. A line of
JSON says which that is.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fastgae
from calls import one_thread, prepared
from fastgae._dispatch import CPU_TARGETS, resolve_backend
from rows import FRESH, case

FEW = 2
# Sizes and numbers of blocks that fill the holes of the heap, so that what a call allocates always lies above its
# arguments: how long malloc searches, and how soon it is seen that two arrays are apart, depends on where they lie.
FILLING = ((1024, 4000), (4096, 2000), (16384, 500), (65536, 200))
ROWS = [
    (case("plain", 1, 1, outputs=FRESH), 100),
    *((case(name, 128, 8, outputs=FRESH), 100) for name in ("plain", "next_values", "mask", "normalize", "V-trace")),
    *((case("plain", 128, 1024, env_major=env_major), 100) for env_major in (False, True)),
    *((case("plain", 128, 512, dtype="float64", env_major=env_major), 10) for env_major in (False, True)),
    *(
        (case(name, 128, 512), 10)
        for name in ("next_values", "final_values", "mask", "gamma per step", "V-trace", "normalize", "packed")
    ),
    *((case(name, 128, 512, env_major=True), 10) for name in ("final_values", "mask")),
    (case("plain", 8192, 1, ends=0.0), 10),
    (case("plain", 1024, 4096), 1),  # streamed
]
BY_ITSELF = [row for row, _ in ROWS if row.outputs == FRESH or row == case("plain", 128, 1024)]  # no target asked for
REFERENCE = (case("plain", 16, 8, outputs=FRESH), 100)


def main() -> None:
    targets = cpp()
    pairs = [(row, more, name) for row, more in ROWS for name in (["cpp"] if row in BY_ITSELF else []) + targets]
    for row, more, name in [*pairs, (*REFERENCE, "numpy")]:
        call = prepared(row).call(one_thread([name])[0])
        for _ in range(2 * more):  # Python adapts its bytecode to what it has met
            call()
        processes = [forked(call, count) for count in (FEW, FEW + more)]
        print(json.dumps({"row": row.name, "target": name, "processes": processes, "calls": more}), flush=True)


def cpp() -> list[str]:
    """Its targets; to ask for all backends would load Numba."""
    names = []
    for target in CPU_TARGETS:
        with suppress(fastgae.BackendUnavailableError):
            resolve_backend(f"cpp:{target}")
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
