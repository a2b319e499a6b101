"""The one table of rows: every call that is measured, under the name of the part that measures it."""

from typing import Any, NamedTuple

from .rows import ADVANTAGES, CASES, FRESH, OPTIONS, Row, case

ONE, FEW, SMALL = (1, 1), (8, 1), (128, 8)
HALF, CACHED, DEEP = (128, 512), (128, 1024), (2048, 64)  # these fit into the caches
COLD = (1024, 1024)  # and so does this, unless it is cold
MEMORY = (1024, 4096)  # this does not
LONG, BRIEF = (65536, 1), (20, 4096)
LAYOUTS = (False, True)  # env_major

# The figures, and the throughput of `pytest benchmarks`.
THROUGHPUT = [
    *(case("plain", *size) for size in (SMALL, CACHED, DEEP, MEMORY)),
    *(case("plain", *size, env_major=True) for size in (CACHED, MEMORY)),
    *(case("plain", *size, env_major=env_major, cold=True) for size in (COLD, CACHED) for env_major in LAYOUTS),
    case("plain", *CACHED, dtype="float64"),
    case("plain", *LONG),
    *(case(name, *CACHED) for name in OPTIONS),
]
OVERHEAD = [case(name, *FEW, outputs=FRESH) for name in ("plain", *OPTIONS)]
# In `pytest benchmarks` alone.
TREE: dict[str, Any] = {"function": "gae_tree", "bootstrap": "parents", "options": {"gamma": 1.0}}
TREES = [Row("tree", nodes, 1, **TREE) for nodes in (64, 2**16, 2**20)]
THREADS = [case("plain", *size, env_major=env_major) for size in (MEMORY, (4096, 4096)) for env_major in LAYOUTS]
PEAK_MEMORY = [
    *(case(name, *MEMORY) for name in ("plain", *OPTIONS)),
    *(case(name, *MEMORY, env_major=True) for name in ("plain", "mask")),
    case("plain", *MEMORY, outputs=FRESH),
]

# The gate. Its rows are keys of accepted numbers: a new name needs a new number.
# A short call takes a microsecond or two. Its ratio to an equally small np.add varies little between CPUs.
SHORT = [
    *(case("plain", *size, outputs=FRESH) for size in (ONE, SMALL)),
    *(case(name, *FEW, outputs=FRESH) for name in ("next_values", "mask", "normalize", "packed")),
    *(case(name, *SMALL, outputs=FRESH) for name in ("retrace", "upgo")),
]
LONGER = [
    *(case("plain", *CACHED, env_major=env_major) for env_major in LAYOUTS),
    *(case(name, *CACHED) for name in ("final_values", "mask", "V-trace", "normalize", "packed")),
    case("plain", *LONG, ends=0.0),
    case("plain", *MEMORY),
]
BRANCHING = TREES[1]
# Rows on which the target that runs by itself must not lose against another one.
ORDER = [
    *LONGER,
    *(case("plain", *size, env_major=True) for size in (MEMORY, BRIEF)),
    case("plain", *DEEP),
    case("plain", *DEEP, env_major=True, outputs=ADVANTAGES),
    case("plain", *CACHED, dtype="float64"),
]
# Wide vectors count most in the caches and with one output, so on this row the target of a CPU must beat the baseline.
WIDE = case("plain", 128, 256, env_major=True, outputs=ADVANTAGES)
# Long calls that compute more than they move, so that every backend shares them between two threads.
THREADED = [case(name, 1024, 2048, env_major=True) for name in ("mask", "V-trace")]
# Instructions are counted of these calls on the default target, and of the others on each.
COUNTED_BY_DEFAULT = [
    *(case(name, *SMALL, outputs=FRESH) for name in CASES),
    case("plain", *ONE, outputs=FRESH),
    *(case("plain", *size) for size in (SMALL, CACHED)),
]
COUNTED = [
    *(case("plain", *CACHED, env_major=env_major) for env_major in LAYOUTS),
    *(case("plain", *HALF, dtype="float64", env_major=env_major) for env_major in LAYOUTS),
    *(case(name, *HALF) for name in (*OPTIONS, "discounts")),
    *(case(name, *HALF, env_major=True) for name in ("final_values", "mask", "V-trace", "normalize")),
    case("plain", 8192, 1, ends=0.0),
    case("plain", *MEMORY),  # the outputs are streamed past the caches
    *(case("plain", *size, env_major=True) for size in ((512, 4096), BRIEF)),
]
AB = [*SHORT, *ORDER]


class Limit(NamedTuple):
    """A row, and the goal that this project sets itself: at most ``times`` the time of the yardstick ``over``."""

    row: Row
    times: float
    over: str


ADD, LIMIT = "np.add", "limit"  # the limit: what the bytes of the row cost at the speed of memory
FROM_MEMORY = [(1024, 16384), (128, 65536), (16384, 1024), (16, 1048576)]
FIRST = FROM_MEMORY[0]
ONE_OUTPUT: dict[str, Any] = {"env_major": True, "outputs": ADVANTAGES}
LIMITS = [
    *(Limit(Row("time-major, from memory", *size), 1.15, LIMIT) for size in FROM_MEMORY),
    *(
        Limit(Row("time-major, more bytes per step", *FIRST, detail=detail, **settings), 1.2, LIMIT)
        for detail, settings in (("next_values, truncated", CASES["next_values"]), ("float64", {"dtype": "float64"}))
    ),
    *(Limit(Row("time-major, in cache", *size), 1.6, ADD) for size in (CACHED, DEEP)),
    *(
        Limit(Row("env-major, from memory, advantages only", *size, **ONE_OUTPUT), 2, LIMIT)
        for size in [*FROM_MEMORY, (1000, 16384)]
    ),
    *(
        # Rows that lie a multiple of a page apart meet in the same sets of the cache.
        Limit(
            Row("env-major, in cache, advantages only", *size, **ONE_OUTPUT), 3.2 if size[0] % 1024 == 0 else 2.6, ADD
        )
        for size in [CACHED, DEEP, (1024, 128), (64, 2048), (1008, 128), (256, 512), (2000, 64), BRIEF]
    ),
    *(Limit(Row("one trajectory, no episode ends", steps, 1, ends=0), 3.3, ADD) for steps in (65536, 1048576)),
    *(
        Limit(Row("few long trajectories, time-major", *size), 3.2, ADD)
        for size in ((65536, 4), (65536, 8), (300_000, 3))
    ),
    Limit(Row("small call", *SMALL, detail="fresh outputs", outputs=FRESH), 5, ADD),
    Limit(Row("small call", *SMALL, detail="out="), 4, ADD),
    Limit(Row("options, from memory", *FIRST, detail="normalize", **CASES["normalize"]), 3, LIMIT),
]
