"""Large rollouts with one, two, four … threads, up to the number of CPUs that this process may use."""

from collections.abc import Callable

from speed import table
from speed.contenders import Contender, runs_here, thread_counts
from speed.machine import usable_cpus
from speed.rows import Row

ROWS = table.THREADS
CONTENDERS = thread_counts(runs_here(), usable_cpus())


def test_threads(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
