"""Floors: every backend against NumPy, within one run.

CPUs differ, so the floors stand below the ratios of the machine that they were accepted on: they find a collapse, or a
microsecond more on the smallest calls.
"""

from collections.abc import Iterator
from time import thread_time

from speed.calls import prepared
from speed.contenders import runs_here
from speed.rows import Row
from speed.table import ADD, BRANCHING, LONGER, SHORT
from speed.timing import np_add

from . import accepted
from .accepted import Line, left_out
from .ratios import compared, measured, timer

PAIRS = (("cpp", ADD), ("cpp", "numpy"), ("numba", "numpy"), ("numpy", ADD))
# A floor is this part of the accepted ratio. On arrays that fill a cache, np.add alone varies by a factor of three
# from one kind of CPU to another: such a floor finds a collapse.
MARGIN, MARGIN_OF_ADD = 0.5, {True: 0.7, False: 0.3}  # of short rows, and of longer ones
ROWS = [*SHORT, *LONGER, BRANCHING]
FAR = 4  # times its floor: so high a ratio is accepted anew, and so is one below its floor


def check() -> Iterator[Line]:
    known = accepted.read("floors")
    backends = {*runs_here(), ADD}
    yield from (
        left_out(f"floors of {name}", "it cannot run here") for name in ("cpp", "numba") if name not in backends
    )
    for row in ROWS:
        floors = {pair: known[row.name][" over ".join(pair)] for pair in PAIRS if backends.issuperset(pair)}
        yield from compared(row.name, timers(row), floors)


def accept() -> Iterator[str]:
    """Write floors where this machine is below one or far above it. All others stay, because machines differ.

    The slowest of the wide CPU targets sets a floor, so that all of them have it.
    """
    known = accepted.read("floors")
    wide = [name for name in runs_here(every_target=True) if name.startswith("cpp:") and name != "cpp:baseline"]
    floors: dict[str, dict[str, float]] = {}
    for row in ROWS:
        never = dict.fromkeys([*PAIRS, *((name, over) for name in wide for over in (ADD, "numpy"))], float("inf"))
        ratios = measured(timers(row, wide), never)  # tries as often as it can
        floors[row.name] = dict(known.get(row.name, {}))
        for pair in PAIRS:
            one, over = pair
            slowest = min(ratio for (name, other), ratio in ratios.items() if name.startswith(one) and other == over)
            before = floors[row.name].get(" over ".join(pair), 0)
            if not before <= slowest < FAR * before:
                margin = MARGIN_OF_ADD[row in SHORT] if over == ADD else MARGIN
                floors[row.name][" over ".join(pair)] = float(f"{slowest * margin:.2g}")
    return accepted.write("floors", floors)


def timers(row: Row, more: list[str] | None = None) -> dict:
    ready = prepared(row)
    calls = {name: timer(ready, name) for name in [*runs_here(), *(more or [])]}
    return {ADD: np_add(ready.first, thread_time), **calls}
