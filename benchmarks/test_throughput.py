"""The throughput of every backend and CPU target beside the NumPy reference, a group for each call.

``pytest benchmarks`` measures; with ``--benchmark-disable`` it only compares every answer with the reference.
"""

from typing import Any

import pytest

from speed.calls import prepared
from speed.contenders import Contender, one_thread, runs_here
from speed.rows import Row
from speed.table import OVERHEAD, THROUGHPUT, TREES


@pytest.mark.parametrize("contender", one_thread(runs_here(every_target=True)), ids=lambda contender: contender.name)
@pytest.mark.parametrize("row", [*THROUGHPUT, *OVERHEAD, *TREES], ids=lambda row: row.name)
@pytest.mark.benchmark(max_time=0.1, min_rounds=2)
def test_throughput(benchmark: Any, row: Row, contender: Contender) -> None:
    ready = prepared(row)
    assert ready.right(contender)
    benchmark.group, benchmark.name = row.name, contender.name
    benchmark(ready.call(contender))
    if benchmark.stats:  # not with --benchmark-disable
        benchmark.extra_info["steps_per_second"] = row.size / benchmark.stats.stats.min
