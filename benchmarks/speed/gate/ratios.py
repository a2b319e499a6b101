"""Ratios of calls that take turns within one run, by the clock of the calling thread's own work.

Others who want the CPUs do not change that clock, but they still empty the caches, which only ever adds time. So a
sample is short, to find a moment in which nobody disturbs it, and a ratio below its floor is measured again with all
samples.
"""

from collections.abc import Iterator, Mapping
from time import thread_time
from timeit import Timer

from speed.calls import Prepared
from speed.contenders import Contender
from speed.timing import Clock, in_turn

from .accepted import Line

SECONDS, RETRIES = 0.15, 9  # for each call of a comparison; for each ratio below its floor
SAMPLE_SECONDS = 0.0005
PLACE = 3  # of the sample that counts, from the best one on, which may be an error of a virtual machine's clock
Pair = tuple[str, str]


def timer(prepared: Prepared, name: str, num_threads: int | None = 1) -> Timer:
    return prepared.timer(Contender(name, name, num_threads), thread_time)


def compared(what: str, timers: Mapping[str, Timer], floors: Mapping[Pair, float]) -> Iterator[Line]:
    """Yield a line for each pair of calls: the speed of the first over the speed of the second, and its floor."""
    for pair, ratio in measured(timers, floors).items():
        yield Line(f"{what}, {pair[0]} over {pair[1]}", f"{ratio:.3g}, floor {floors[pair]:.2g}", ratio < floors[pair])


def measured(timers: Mapping[str, Timer], floors: Mapping[Pair, float]) -> dict[Pair, float]:
    clocks = {name: Clock(timer, sample_seconds=SAMPLE_SECONDS) for name, timer in timers.items()}
    best: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(1 + RETRIES):
        for name, samples in in_turn(clocks, SECONDS).items():
            best[name] = sorted([*best[name], *samples])[:PLACE]
        ratios = {(one, other): best[other][-1] / best[one][-1] for one, other in floors}
        if all(ratio >= floors[pair] for pair, ratio in ratios.items()):
            break
    return ratios
