"""Throughput of every backend and CPU target: shapes, both layouts, dtypes and cases, with ``out=`` and one thread."""

from collections.abc import Callable

from calls import one_thread, runs_here
from rows import CASES, Contender, Row, case

SMALL, CACHED, DEEP, MEMORY = (128, 8), (128, 1024), (2048, 64), (1024, 4096)
LAYOUTS = ({}, {"env_major": True})
ROWS = [
    *(case("plain", *size, **layout) for size in (SMALL, CACHED, DEEP, MEMORY) for layout in LAYOUTS),
    *(case("plain", steps, 1) for steps in (2048, 65536)),
    *(case("plain", *size, dtype="float64", **layout) for size in (CACHED, MEMORY) for layout in LAYOUTS),
    *(case(name, *SMALL) for name in CASES if name != "plain"),
    *(case(name, *CACHED, **layout) for name in CASES if name not in ("plain", "packed") for layout in LAYOUTS),
    *(case(name, *MEMORY) for name in ("final_values", "mask", "V-trace", "normalize")),
    case("packed", *CACHED),
]
CONTENDERS = one_thread(runs_here(every_target=True))


def test_throughput(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
