"""The one table of rows: every call that is measured, under the name of the part that measures it."""

from dataclasses import dataclass
from typing import Any

from .contenders import ADD, AS_ADDS, COPIES, LIMIT, Goal
from .rollouts import PAGE
from .rows import ADVANTAGES, BOTH, CASES, FRESH, SIBLINGS, Row, case

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
# Rows on which the target that runs by itself must not lose against another one.
ORDER = [
    *(case("plain", *size, env_major=env_major) for size in (CACHED, MEMORY) for env_major in LAYOUTS),
    case("plain", *DEEP),
    case("plain", *DEEP, env_major=True, outputs=ADVANTAGES),
    case("plain", *CACHED, dtype="float64"),
    case("plain", *LONG, ends=0.0),
    *(case(name, *CACHED) for name in ("mask", "V-trace", "normalize", "packed")),
]
# Long calls that compute more than they move, so that a second thread halves the work of the first on every machine.
THREADED = [case(name, 512, 2048, env_major=True) for name in ("mask", "V-trace")]
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
    goal: Goal | None = None  # of cpp and of its wide targets
    numba_goal: Goal | None = None
    plain: Row | None = None  # timed in turn with the row, for a goal over "plain"
    two_threads: bool = False  # the goal is that of two threads
    offsets: tuple[int, ...] = ()  # bytes between the two outputs; the slowest counts
    quick: bool = True  # measured with --quick too


PLAIN, CPP = "plain", "cpp"  # the entry's plain row by the same backend; the row itself by cpp
FROM_MEMORY: list[Size] = [(1024, 16384), (128, 65536), (16384, 1024), (16, 1048576)]
FIRST = FROM_MEMORY[0]
IN_CACHE: list[Size] = [CACHED, DEEP]
TIME_MAJOR = Goal(1.15, LIMIT, in_cache=1.6)
OF_THEIR_BYTES = Goal(1.2, LIMIT, in_cache=1.6)
TWICE_CPP = Goal(2, CPP)
SMALL_CALL = Goal(0, "", seconds=10e-6)
ONE_OUTPUT: dict[str, Any] = {"env_major": True, "outputs": ADVANTAGES}


def env_major(group: str, steps: int, envs: int, **settings: Any) -> Entry:
    """Return the entry of advantages alone. Rows a multiple of a page apart meet in the same sets of the cache."""
    in_cache = 3.2 if steps * 4 % PAGE == 0 else 2.6
    return Entry(Row(group, steps, envs, **ONE_OUTPUT), Goal(2, LIMIT, in_cache=in_cache), **settings)


YARDSTICK = [
    *(Entry(Row("time-major, from memory", *size), TIME_MAJOR, quick=size == FIRST) for size in FROM_MEMORY),
    *(
        # Every offset begins at another place of a cache line, and sixteen of them go once around a page.
        Entry(
            Row("time-major, from memory, the worst of 16 offsets between the outputs", *size),
            Goal(1.35, LIMIT, in_cache=1.6),
            offsets=tuple(range(0, PAGE, 272)),
            quick=False,
        )
        for size in FROM_MEMORY
    ),
    *(
        Entry(Row("time-major, more bytes per step", *FIRST, detail=detail, **settings), OF_THEIR_BYTES, quick=False)
        for detail, settings in (("next_values, truncated", CASES["next_values"]), ("float64", {"dtype": "float64"}))
    ),
    *(Entry(Row("time-major, in cache", *size), TIME_MAJOR, TWICE_CPP) for size in IN_CACHE),
    *(
        env_major("env-major, from memory, advantages only", *size, quick=size == FIRST)
        for size in [*FROM_MEMORY, (1000, 16384)]
    ),
    *(
        env_major("env-major, in cache, advantages only", *size, numba_goal=TWICE_CPP if size in IN_CACHE else None)
        for size in [*IN_CACHE, (1024, 128), (64, 2048), (1008, 128), (256, 512), (2000, 64)]
    ),
    *(
        Entry(Row("one trajectory, no episode ends", steps, 1, ends=0), Goal(3.3, ADD), quick=steps < 100_000)
        for steps in (65536, 1048576)
    ),
    *(
        Entry(Row("few long trajectories, time-major", *size), Goal(3.2, ADD), quick=size[0] < 100_000)
        for size in ((65536, 4), (65536, 8), (300_000, 3))
    ),
    *(
        Entry(
            Row("packed sequences", steps, 1, detail="of 256 steps", **CASES["packed"]),
            Goal(1.5, PLAIN),
            plain=case("plain", steps, 1),
            quick=steps < 100_000,
        )
        for steps in (65536, 1048576)
    ),
    Entry(
        Row("small call", *SMALL, detail="fresh outputs", outputs=FRESH),
        Goal(5, ADD),
        numba_goal=Goal(0, "", seconds=8e-6),
    ),
    Entry(Row("small call", *SMALL, detail="out="), Goal(4, ADD)),
    *(
        Entry(Row("small call of a sibling", *SMALL, detail=name, outputs=FRESH, **SIBLINGS[name]), SMALL_CALL)
        for name in ("td_lambda", "discounted_returns", "reverse_scan")
    ),
    *(
        Entry(Row("small call of a sibling", 1024, 1, detail=name, outputs=FRESH, **SIBLINGS[name]), SMALL_CALL)
        for name in ("packed, mask", "packed, normalize")
    ),
    *(
        Entry(
            Row("small call, converted", *SMALL, detail=given, outputs=FRESH, given=given),
            Goal(1, COPIES, seconds=10e-6),
        )
        for given in ("strided", "byte-swapped", "int flags")
    ),
    *(
        # The plain call writes to the same arrays again; this one drops its results and asks for new ones.
        Entry(
            Row("results not passed in", *size, outputs=FRESH),
            Goal(1.15, PLAIN),
            plain=Row("results not passed in", *size, detail="out="),
            quick=size == MEMORY,
        )
        for size in ((128, 64), CACHED, (1024, 1024), MEMORY, FIRST)
    ),
    *(
        # At most twice the time of the plain case for each byte that is moved; the plain case moves 17 per step.
        Entry(
            Row(f"options, {group}", *size, detail=name, **CASES[name]),
            Goal(round(2 * moved / 17, 2), PLAIN),
            plain=case("plain", *size),
            quick=size != FIRST,
        )
        for group, size in (("in cache", CACHED), ("from memory", FIRST))
        for name, moved in (("mask", 18), ("gamma per step", 17), ("V-trace", 21), ("normalize", 33))
        if (name, size) != ("normalize", FIRST)
    ),
    Entry(Row("options, from memory", *FIRST, detail="normalize", **CASES["normalize"]), Goal(3, LIMIT), quick=False),
    *(
        Entry(Row(f"other input, {group}", *size, detail=detail, **settings), quick=size != FIRST)
        for group, size in (("in cache", CACHED), ("from memory", FIRST))
        for detail, settings in (
            ("final_values, two flags", CASES["final_values"]),
            ("env-major, both outputs", {"env_major": True}),
        )
    ),
    *(
        Entry(
            Row("two threads", *FIRST, detail=detail, env_major=detail == "env-major"),
            Goal(1 / 0.9, AS_ADDS),  # less ten per cent
            two_threads=True,
            quick=False,
        )
        for detail in ("time-major", "env-major")
    ),
]
