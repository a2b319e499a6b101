"""Print the times of every library's call with and without its hook, as JSON.

The package ``peers`` is tests/peers. Of the calls in its hook_*.py, those of the size of a training run are timed.
Their results are compared first. Then both are sampled in turn, and the best sample of each counts.
"""

import importlib
from collections.abc import Iterator
from functools import partial
from timeit import Timer
from typing import Any

import numpy as np

from peers.compare import LIBRARIES, Comparison
from speed.timing import Clock, in_turn

from .apart import print_rows

SECONDS = 1.0  # of samples of each


def measure(library: str) -> Iterator[dict[str, Any]]:
    for hooked in importlib.import_module(f"peers.hook_{library}").hooks(np.random.default_rng(0)):
        if hooked.timed:
            before = hooked.before()
            with hooked.install():
                compared = Comparison(hooked.name, before, hooked.after(), hooked.tolerance)
            assert compared.holds(), f"{hooked.name}: wrong results"
            clocks = {"before": Clock(Timer(hooked.before)), "after": Clock(Timer(hooked.after), hooked.install)}
            best = {f"{when}_seconds": min(samples) for when, samples in in_turn(clocks, SECONDS).items()}
            yield {"library": library, "call": hooked.name, **best}


if __name__ == "__main__":
    print_rows({library: partial(measure, library) for library in LIBRARIES})
