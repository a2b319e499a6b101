"""The one timer: samples of several calls taken in turn, so that all of them meet the same disturbances."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from timeit import Timer
from typing import Any

import numpy as np

from .rollouts import Array

SAMPLE_SECONDS = 0.005
Seconds = Callable[[], float]


class Clock:
    """A call, and how many of it fill a sample; ``context`` is entered around each sample, outside its time."""

    def __init__(
        self,
        timer: Timer,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        sample_seconds: float = SAMPLE_SECONDS,
    ) -> None:
        self.timer, self.context = timer, context
        with context():
            self.number = calls_per_sample(timer, sample_seconds)

    def sample(self) -> float:
        """Return the seconds of one call, as the mean over a sample."""
        with self.context():
            if self.number > 1:
                self.timer.timeit(1)  # fill the cache with what fits into it
            return self.timer.timeit(self.number) / self.number


def calls_per_sample(timer: Timer, sample_seconds: float) -> int:
    seconds = min(timer.repeat(2, 1))  # the first call may compile, and the second find cold caches
    if seconds < 10 * sample_seconds:
        seconds = min(timer.repeat(5, 1))
    return 1 + int(sample_seconds / seconds)


def in_turn(clocks: Mapping[str, Clock], seconds: float) -> dict[str, list[float]]:
    """Sample the clocks in turn until each has used so many seconds; return the samples of each, at least one."""
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    left = dict.fromkeys(clocks, seconds)
    while any(time_left > 0 for time_left in left.values()):
        for name, clock in clocks.items():
            if left[name] > 0:
                start = perf_counter()
                samples[name].append(clock.sample())
                left[name] -= perf_counter() - start
    return samples


def best(timers: Mapping[str, Timer], seconds: float) -> dict[str, float]:
    """Return the best sample of each, because disturbances only ever add time."""
    samples = in_turn({name: Clock(timer) for name, timer in timers.items()}, seconds)
    return {name: min(found) for name, found in samples.items()}


def np_add(rewards: Array, clock: Seconds = perf_counter, copies: int = 1) -> Timer:
    """Return the yardstick. It has arrays of its own, so that it and a call find nothing of each other in the cache."""
    turns = [tuple(rewards.copy() for _ in range(3)) for _ in range(copies)]
    if copies > 1:
        return Timer("add(*turn())", timer=clock, globals={"add": np.add, "turn": itertools.cycle(turns).__next__})
    a, b, c = turns[0]
    return Timer("add(a, b, out=c)", timer=clock, globals={"add": np.add, "a": a, "b": b, "c": c})
