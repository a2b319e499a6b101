"""The one table of rows: every call that is measured, under the name of the part that measures it."""

from dataclasses import dataclass
from typing import Any

from .rows import ADVANTAGES, BOTH, CASES, FRESH, Row, case

Size = tuple[int, int]
ONE, FEW, SMALL = (1, 1), (8, 1), (128, 8)
HALF, CACHED, DEEP = (128, 512), (128, 1024), (2048, 64)  # these fit into the caches
MEMORY = (1024, 4096)  # this does not
LONG = (65536, 1)
LAYOUTS = (False, True)  # env_major
OPTIONS = [name for name in CASES if name != "plain"]

# The suite (pytest-benchmark).
THROUGHPUT = [
    *(case("plain", *size, env_major=env_major) for size in (SMALL, CACHED, DEEP, MEMORY) for env_major in LAYOUTS),
    *(case("plain", steps, 1) for steps in (2048, 65536)),
    *(case("plain", *size, dtype="float64", env_major=env_major) for size in (CACHED, MEMORY) for env_major in LAYOUTS),
    *(case(name, *SMALL) for name in OPTIONS),
    *(case(name, *CACHED, env_major=env_major) for name in OPTIONS if name != "packed" for env_major in LAYOUTS),
    *(case(name, *MEMORY) for name in ("final_values", "mask", "V-trace", "normalize")),
    case("packed", *CACHED),
]
OVERHEAD = [
    *(case("plain", *size, outputs=outputs) for size in (ONE, FEW) for outputs in (FRESH, BOTH)),
    *(case(name, *FEW, outputs=FRESH) for name in OPTIONS),
]
THREADS = [case("plain", *size, env_major=env_major) for size in (MEMORY, (65536, 4)) for env_major in LAYOUTS]
PEAK_MEMORY = [
    *(case(name, *MEMORY) for name in CASES),
    *(case(name, *MEMORY, env_major=True) for name in ("plain", "mask")),
    case("plain", *MEMORY, outputs=FRESH),
]

# The gate. Its rows are keys of floors.json and instructions.json: a new name needs a new accepted number.
# A short call takes a microsecond or two. Its ratio to an equally small np.add varies little between CPUs.
SHORT = [
    *(case("plain", *size, outputs=FRESH) for size in (ONE, SMALL)),
    case("next_values", *FEW, outputs=FRESH),
]
LONGER = [
    *(case(name, *FEW, outputs=FRESH) for name in ("mask", "normalize", "packed")),
    *(case("plain", *CACHED, env_major=env_major) for env_major in LAYOUTS),
    *(case(name, *CACHED) for name in ("final_values", "mask", "V-trace", "normalize", "packed")),
    case("plain", *LONG, ends=0.0),
    case("plain", *MEMORY),
]
# Wide vectors count most in the caches and with one output, so this row shows which CPU target runs.
DISPATCH = case("plain", 128, 256, env_major=True, outputs=ADVANTAGES)
# Each counted row with the number of calls that are counted.
COUNTED = [
    (case("plain", *ONE, outputs=FRESH), 100),
    *((case(name, *SMALL, outputs=FRESH), 100) for name in ("plain", "next_values", "mask", "normalize", "V-trace")),
    *((case("plain", *CACHED, env_major=env_major), 100) for env_major in LAYOUTS),
    *((case("plain", *HALF, dtype="float64", env_major=env_major), 10) for env_major in LAYOUTS),
    *(
        (case(name, *HALF), 10)
        for name in ("next_values", "final_values", "mask", "gamma per step", "V-trace", "normalize", "packed")
    ),
    *((case(name, *HALF, env_major=True), 10) for name in ("final_values", "mask")),
    (case("plain", 8192, 1, ends=0.0), 10),
    (case("plain", *MEMORY), 1),  # the outputs are streamed past the caches
]
COUNTED_REFERENCE = (case("plain", 16, 8, outputs=FRESH), 100)  # by the numpy backend
AB = [
    *(case(name, *FEW, outputs=FRESH) for name in ("plain", "mask", "normalize", "packed")),
    case("plain", *SMALL, outputs=FRESH),
    *(case("plain", *CACHED, env_major=env_major) for env_major in LAYOUTS),
    case("plain", *CACHED, dtype="float64"),
    *(case(name, *CACHED) for name in ("final_values", "mask", "V-trace", "normalize", "packed")),
    case("plain", *LONG, ends=0.0),
    *(case("plain", *MEMORY, env_major=env_major) for env_major in LAYOUTS),
]

# The figures. Their peak memory is PEAK_MEMORY.
SHOWN_THROUGHPUT = [
    *(case("plain", *size) for size in (SMALL, CACHED, DEEP, MEMORY)),
    *(case("plain", *size, env_major=True) for size in (CACHED, MEMORY)),
    case("plain", *CACHED, dtype="float64"),
    case("plain", *LONG),
    *(case(name, *CACHED) for name in OPTIONS),
]
SHOWN_OVERHEAD = [case(name, *FEW, outputs=FRESH) for name in CASES]
SHOWN_THREADS = [case("plain", *size, env_major=env_major) for size in (MEMORY, (4096, 4096)) for env_major in LAYOUTS]


@dataclass(frozen=True)
class Entry:
    """A row of the yardstick, with its goals."""

    row: Row
    goal: float | None = None  # of cpp: at most this many times np.add, or times ``plain`` where that is given
    numba_goal: float | None = None  # of numba: at most this many times cpp
    plain: Row | None = None  # timed in turn with the row by cpp
    two_threads: bool = False  # compare two threads with one
    quick: bool = True  # measured with --quick too


FROM_MEMORY: list[Size] = [(1024, 16384), (16, 1048576), (128, 65536), (16384, 1024)]
FIRST = FROM_MEMORY[0]
IN_CACHE: list[Size] = [CACHED, DEEP]
ONE_OUTPUT: dict[str, Any] = {"env_major": True, "outputs": ADVANTAGES}
YARDSTICK = [
    *(
        Entry(
            Row("time-major, from memory", *size),
            goal=1.15 if size == FIRST else 1.25,
            numba_goal=2,
            quick=size == FIRST,
        )
        for size in FROM_MEMORY
    ),
    *(Entry(Row("time-major, in cache", *size), goal=1.5, numba_goal=2) for size in IN_CACHE),
    *(
        Entry(Row("env-major, in cache, advantages only", *size, **ONE_OUTPUT), goal=2, numba_goal=2)
        for size in [*IN_CACHE, (1024, 128), (64, 2048)]
    ),
    *(
        Entry(
            Row("env-major, from memory, advantages only", *size, **ONE_OUTPUT),
            goal=1.5,
            numba_goal=2,
            quick=size == FIRST,
        )
        for size in FROM_MEMORY
    ),
    *(
        Entry(Row("one trajectory, no episode ends", steps, 1, ends=0), goal=2.5, quick=steps < 100_000)
        for steps in (65536, 1048576)
    ),
    Entry(Row("small call", *SMALL, detail="fresh outputs", outputs=FRESH), goal=5),
    Entry(Row("small call", *SMALL, detail="out="), goal=5),
    *(
        Entry(Row("other input", *size, detail=detail, **settings), quick=size != FIRST)
        for size in (CACHED, FIRST)
        for detail, settings in (
            ("next_values, two flags", CASES["next_values"]),
            ("final_values, two flags", CASES["final_values"]),
            ("float64", {"dtype": "float64"}),
            ("env-major, both outputs", {"env_major": True}),
        )
    ),
    *(
        # At most twice the time of the plain case for each byte that is moved; the plain case moves 17 per step.
        Entry(
            Row(f"options, {group}", *size, detail=name, **CASES[name]),
            goal=round(2 * moved / 17, 2),
            plain=case("plain", *size),
            quick=size != FIRST,
        )
        for group, size in (("in cache", CACHED), ("from memory", FIRST))
        for name, moved in (("mask", 18), ("gamma per step", 17), ("V-trace", 21), ("normalize", 33))
    ),
    *(
        Entry(
            Row("packed sequences", steps, 1, detail="of 256 steps", **CASES["packed"]),
            goal=2,
            plain=case("plain", steps, 1),
            quick=steps < 100_000,
        )
        for steps in (65536, 1048576)
    ),
    Entry(Row("few long trajectories", 65536, 4)),
    Entry(Row("env-major, T no power of two, advantages only", 2000, 64, **ONE_OUTPUT)),
    Entry(Row("env-major, T no power of two, advantages only", 1000, 16384, **ONE_OUTPUT), quick=False),
    *(
        Entry(Row("two threads", *FIRST, detail=detail, env_major=detail == "env-major"), two_threads=True, quick=False)
        for detail in ("time-major", "env-major")
    ),
]
