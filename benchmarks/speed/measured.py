"""A row measured: every answer checked, then np.add, the limit of memory and every contender timed in turn."""

from collections.abc import Sequence
from timeit import Timer
from typing import Any

import numpy as np

from .calls import Prepared, prepared
from .contenders import Contender
from .limit import streaming_add
from .rows import Row
from .table import ADD, LIMIT
from .timing import best, np_add

ADD_BYTES = 12  # that an addition of float32 moves with streaming stores, per number


def measure(row: Row, contenders: Sequence[Contender], seconds: float, over: str = ADD) -> dict[str, Any]:
    """Time the contenders and the yardsticks for so many seconds each; return types of JSON."""
    ready = prepared(row)
    wrong = [each.name for each in contenders if not ready.right(each)]
    assert not wrong, f"{row.name}: {', '.join(wrong)} differ from numpy"
    timers = {ADD: np_add(ready.first, copies=ready.copies), **({LIMIT: limit(ready)} if over == LIMIT else {})}
    found = best(timers | {each.name: ready.timer(each) for each in contenders}, seconds)
    if over == LIMIT:  # the seconds in which memory moves the bytes of the row
        found[LIMIT] *= ready.bytes_moved() / (ADD_BYTES * row.size)
    return {"group": row.group, "label": row.label, "seconds": found}


def limit(ready: Prepared) -> Timer:
    a, b, out = (np.ones(ready.row.size, np.float32) for _ in range(3))
    return Timer("add(a, b, out)", globals={"add": streaming_add(), "a": a, "b": b, "out": out})
