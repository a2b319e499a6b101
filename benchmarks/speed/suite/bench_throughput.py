"""Throughput of every backend and CPU target on shapes, layouts, dtypes and cases, with ``out=`` and one thread."""

from collections.abc import Callable

from speed import table
from speed.contenders import Contender, one_thread, runs_here
from speed.rows import Row

ROWS = table.THROUGHPUT
CONTENDERS = one_thread(runs_here(every_target=True))


def test_throughput(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
