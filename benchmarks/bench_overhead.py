"""What a call costs before the kernel counts: rollouts of one step and of eight, new outputs and given ones."""

from collections.abc import Callable

from calls import one_thread, runs_here
from rows import BOTH, CASES, FRESH, Contender, Row, case

ROWS = [
    *(case("plain", *size, outputs=outputs) for size in ((1, 1), (8, 1)) for outputs in (FRESH, BOTH)),
    *(case(name, 8, 1, outputs=FRESH) for name in CASES if name != "plain"),
]
CONTENDERS = one_thread(runs_here())


def test_overhead(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
