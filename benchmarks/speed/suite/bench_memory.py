"""No call takes more memory beside its arguments and outputs than this file allows."""

from typing import Any

from speed import memory, table
from speed.calls import prepared
from speed.contenders import Contender, one_thread, runs_here, without_reference
from speed.rows import Row

# Small objects, code that Numba looks up, stacks of threads, rows or columns, and one huge page more or less.
FIXED = 3 * 1024 * 1024
# Bytes per step beyond that. A pair that is not named here needs nothing that grows with the rollout.
PER_STEP = {
    ("cpp", "packed"): 2.1,  # two flags
    ("cpp", "normalize"): 0.2,  # sums of blocks of steps
    ("numba", "packed"): 6.2,  # two flags, and the bootstraps of sequences
    ("numba", "normalize"): 8.2,  # both outputs: an error before the end must leave ``out`` untouched
    ("numba", "final_values"): 4.1,  # sparse final values, spread out over the steps
}

ROWS = table.PEAK_MEMORY
CONTENDERS = one_thread(without_reference(runs_here()))  # the reference may take as much as it likes


def test_memory(row: Row, contender: Contender, report_memory: Any) -> None:
    ready = prepared(row)
    assert ready.right(contender)
    traced, resident = memory.peaks(ready, contender)
    report_memory(row.name, contender.name, traced, resident)
    allowed = PER_STEP.get((contender.backend, row.group), 0) * row.size + FIXED
    assert max(traced, resident or 0) <= allowed
