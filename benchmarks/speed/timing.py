"""The one timer: samples of several calls taken in turn, so that all of them meet the same disturbances."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from timeit import Timer
from typing import Any

import numpy as np

from .rollouts import Array

SAMPLE_SECONDS = 0.005


class Clock:
    """A call, and how many of it fill a sample; ``context`` is entered around each sample, outside its time."""

    def __init__(
        self,
        timer: Timer,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        number: int | None = None,
    ) -> None:
        self.timer, self.context = timer, context
        with context():
            self.number = number or calls_per_sample(timer)

    def sample(self) -> float:
        """Return the seconds of one call, as the mean over a sample."""
        with self.context():
            if self.number > 1:
                self.timer.timeit(1)  # fill the cache with what fits into it
            return self.timer.timeit(self.number) / self.number


def calls_per_sample(timer: Timer) -> int:
    seconds = timer.timeit(1)
    if seconds < SAMPLE_SECONDS:
        seconds = min(timer.repeat(5, 1))
    return 1 + int(SAMPLE_SECONDS / seconds)


def in_turn(groups: Sequence[Sequence[Clock]], seconds: Sequence[float]) -> list[list[tuple[float, ...]]]:
    """Sample the groups in turn until each has used its seconds; return the samples of each.

    The clocks of a group are sampled one right after the other. Every group is sampled at least once.
    """
    samples: list[list[tuple[float, ...]]] = [[] for _ in groups]
    left = list(seconds)
    while any(time_left > 0 for time_left in left):
        for i, group in enumerate(groups):
            if left[i] > 0:
                start = time.perf_counter()
                samples[i].append(tuple(clock.sample() for clock in group))
                left[i] -= time.perf_counter() - start
    return samples


def np_add(rewards: Array) -> Timer:
    """Return the yardstick. It has arrays of its own, so that it and a call find nothing of each other in the cache."""
    a, b, c = (rewards.copy() for _ in range(3))
    return Timer("add(a, b, out=c)", globals={"add": np.add, "a": a, "b": b, "c": c})
