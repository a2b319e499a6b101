"""The cost of a call before the kernel counts: rollouts of one step and of eight, new outputs and given ones."""

from collections.abc import Callable

from speed import table
from speed.contenders import Contender, one_thread, runs_here
from speed.rows import Row

ROWS = table.OVERHEAD
CONTENDERS = one_thread(runs_here())


def test_overhead(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
