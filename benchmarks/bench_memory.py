"""No call takes more memory beside its arguments and outputs than is said here."""

from typing import Any

import memory
from calls import one_thread, prepared, runs_here
from rows import Contender, Row

# Small objects, code that Numba looks up, stacks of threads, rows or columns, and one huge page more or less.
FIXED = 3 * 1024 * 1024
# And then per step; what is not named here takes nothing that grows with the rollout.
PER_STEP = {
    ("cpp", "packed"): 2.1,  # two flags
    ("cpp", "normalize"): 0.2,  # sums of blocks of steps
    ("numba", "packed"): 6.2,  # and the bootstraps of sequences
    ("numba", "normalize"): 0.2,
    ("numba", "final_values"): 4.1,  # sparse ones, spread out
}

ROWS = memory.ROWS
CONTENDERS = one_thread([name for name in runs_here() if name != "numpy"])  # the reference takes what it likes


def test_memory(row: Row, contender: Contender, report_memory: Any) -> None:
    ready = prepared(row)
    assert ready.right(contender)
    traced, resident = memory.peaks(ready, contender)
    report_memory(row.name, contender.name, traced, resident)
    allowed = PER_STEP.get((contender.backend, row.group), 0) * row.steps * row.envs + FIXED
    assert max(traced, resident or 0) <= allowed
