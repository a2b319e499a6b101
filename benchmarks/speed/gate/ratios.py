"""Ratios of calls that take turns within one run, by the clock of the calling thread's own work.

Others who want the CPUs do not change that clock. But they empty the caches, and whoever runs on the other half of the
same core slows all calls at once, for seconds. So a sample is short, each is compared only with those of the same turn,
and a ratio below its floor is measured again.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from time import thread_time
from timeit import Timer

from speed.calls import Prepared
from speed.contenders import Contender
from speed.timing import Clock, in_turn

from .accepted import Line

SECONDS, RETRIES = 0.15, 9  # for each call of a comparison; for each ratio below its floor
SAMPLE_SECONDS = 0.0005
Pair = tuple[str, str]


def timer(prepared: Prepared, name: str) -> Timer:
    return prepared.timer(Contender(name, name), thread_time)


def compared(what: str, timers: Mapping[str, Timer], floors: Mapping[Pair, float]) -> Iterator[Line]:
    """Yield a line for each pair of calls: the speed of the first over the speed of the second, and its floor."""
    for pair, ratio in measured(timers, floors).items():
        yield Line(f"{what}, {pair[0]} over {pair[1]}", f"{ratio:.3g}, floor {floors[pair]:.2g}", ratio < floors[pair])


def measured(timers: Mapping[str, Timer], floors: Mapping[Pair, float]) -> dict[Pair, float]:
    """Return the best of several medians for each pair."""
    clocks = {name: Clock(timer, sample_seconds=SAMPLE_SECONDS) for name, timer in timers.items()}
    ratios = dict.fromkeys(floors, 0.0)
    for _ in range(1 + RETRIES):
        samples = in_turn(clocks, SECONDS)
        for one, other in floors:
            turns = zip(samples[one], samples[other], strict=False)
            ratios[one, other] = max(ratios[one, other], median(theirs / ours for ours, theirs in turns))
        if all(ratio >= floors[pair] for pair, ratio in ratios.items()):
            break
    return ratios
