"""Print the best time of every row as JSON, with the fastgae that this process imports.

The first argument names the place that it must come from; the others name rows, and without them all are timed.
"""

import json
import sys
from pathlib import Path

import fastgae
from speed.calls import prepared
from speed.contenders import one_thread
from speed.rows import Row
from speed.table import AB
from speed.timing import Clock, in_turn

SECONDS = 0.12
CHECKED = 128 * 1024  # the reference would take too long on larger rollouts, and on a single trajectory


def best(row: Row) -> float | None:
    """Return seconds, or None where this revision of fastgae does not know such a call."""
    ready, contender = prepared(row), one_thread(["cpp"])[0]
    try:
        if row.size <= CHECKED and row.envs > 1:
            assert ready.right(contender), f"{row.name}: wrong"
        clock = Clock(ready.timer(contender))
    except (AttributeError, TypeError):
        return None
    (samples,) = in_turn([[clock]], [SECONDS])
    return min(seconds for (seconds,) in samples)


if __name__ == "__main__":
    directory, *names = sys.argv[1:]
    assert Path(directory) in Path(fastgae.__file__).parents, f"{fastgae.__file__} is not in {directory}"
    print(json.dumps({row.name: best(row) for row in AB if not names or row.name in names}))
