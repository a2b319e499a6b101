"""One process of an A/B comparison: the best time of every row with the fastgae that this process imports, as JSON.

The first argument is where that must come from.
"""

import json
import sys
import time
from pathlib import Path

import fastgae
from calls import one_thread, prepared
from rows import FRESH, Row, case
from timing import calls_per_sample, sample

SECONDS = 0.12
ROWS = [
    *(case(name, 8, 1, outputs=FRESH) for name in ("plain", "mask", "normalize", "packed")),
    case("plain", 128, 8, outputs=FRESH),
    *(case("plain", 128, 1024, env_major=env_major) for env_major in (False, True)),
    case("plain", 128, 1024, dtype="float64"),
    *(case(name, 128, 1024) for name in ("final_values", "mask", "V-trace", "normalize", "packed")),
    case("plain", 65536, 1, ends=0.0),
    *(case("plain", 1024, 4096, env_major=env_major) for env_major in (False, True)),
]


def best(row: Row) -> float | None:
    """None where this revision does not know such a call. The answer is checked where that does not take long."""
    ready, contender = prepared(row), one_thread(["cpp"])[0]
    try:
        if row.steps * row.envs <= 128 * 1024 and row.envs > 1:
            assert ready.right(contender), f"{row.name}: wrong"
        timer = ready.timer(contender)
        number = calls_per_sample(timer)
    except (AttributeError, TypeError):
        return None
    samples, end = [], time.perf_counter() + SECONDS
    while not samples or time.perf_counter() < end:
        samples.append(sample(timer, number))
    return min(samples)


if __name__ == "__main__":
    directory, *names = sys.argv[1:]
    assert Path(directory) in Path(fastgae.__file__).parents, f"{fastgae.__file__} is not in {directory}"
    print(json.dumps({row.name: best(row) for row in ROWS if not names or row.name in names}))
