"""The timers of what goals are relative to besides np.add; each takes turns with the calls of the row."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from timeit import Timer

import numpy as np

from .calls import Prepared
from .contenders import AS_ADDS, COPIES, LIMIT

STREAMS = 2
ADD_BYTES = 12  # that an addition of float32 moves with streaming stores, per number


def streaming_add(prepared: Prepared) -> Timer:
    from fastgae import _core

    a, b, out = (np.ones(prepared.row.size, np.float32) for _ in range(3))
    return Timer("add(a, b, out)", globals={"add": _core.streaming_add, "a": a, "b": b, "out": out})


def copies(prepared: Prepared) -> Timer:
    return Timer("for array, kind in pairs: copy(array, kind)", globals={"copy": np.array, "pairs": prepared.converted})


def two_adds(prepared: Prepared) -> Timer:
    """Return np.add over as many numbers as the row has steps, half of them in each of two threads."""
    arrays = (np.array_split(np.ones(prepared.row.size, np.float32), STREAMS) for _ in range(3))
    halves = list(zip(*arrays, strict=True))
    pool = ThreadPoolExecutor(STREAMS)

    def run() -> None:
        list(pool.map(lambda half: np.add(half[0], half[1], out=half[2]), halves))

    return Timer(run)


TIMERS: dict[str, Callable[[Prepared], Timer]] = {LIMIT: streaming_add, COPIES: copies, AS_ADDS: two_adds}
