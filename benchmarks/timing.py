"""How a row is timed: every answer checked, samples of np.add and of every contender in turn, and what they say."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from timeit import Timer

import numpy as np

from calls import Prepared
from rollouts import Array
from rows import Contender, Row

SAMPLE_SECONDS = 0.005
NUMPY_SHARE = 0.2  # of the seconds of the others: the reference has no goal


@dataclass
class Result:
    """What a contender did."""

    contender: Contender
    right: bool
    # (np.add, this), seconds per call; neighbours in time.
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [seconds for _, seconds in self.samples]

    @property
    def median_ratio(self) -> float:
        return statistics.median(seconds / add for add, seconds in self.samples)


@dataclass
class Measured:
    """A row with the times of np.add and of everything that computed it."""

    row: Row
    add_bytes: int
    call_bytes: int
    results: list[Result]

    @property
    def add_seconds(self) -> list[float]:
        return [add for result in self.results for add, _ in result.samples]

    def add_speeds(self) -> dict[str, float]:
        return self._speeds(self.add_seconds, self.add_bytes)

    def speeds(self, result: Result) -> dict[str, float]:
        return self._speeds(result.seconds, self.call_bytes)

    def _speeds(self, seconds: Sequence[float], size: int) -> dict[str, float]:
        """Of the best sample, and the median."""
        best = min(seconds)
        return {
            "best_seconds": best,
            "median_seconds": statistics.median(seconds),
            "samples": len(seconds),
            "steps_per_second": self.row.steps * self.row.envs / best,
            "bytes_per_second": size / best,
        }

    def ratio(self, result: Result) -> float:
        """To np.add, best over best."""
        return min(result.seconds) / min(self.add_seconds)

    def judged(self, result: Result) -> float | None:
        """The same ratio to what its goal speaks of; None without a goal, or where that has no right answer."""
        goal = result.contender.goal
        if goal is None or not result.right:
            return None
        if goal.over == "np.add":
            return self.ratio(result)
        over = next(other for other in self.results if other.contender.name == goal.over)
        return min(result.seconds) / min(over.seconds) if over.right else None

    def met(self, result: Result) -> bool | None:
        goal, judged = result.contender.goal, self.judged(result)
        return None if judged is None or goal is None else judged <= goal.limit


def measure(row: Row, contenders: Sequence[Contender], seconds: float) -> Measured:
    prepared = {called: Prepared(called) for called in {row, *(each.row for each in contenders if each.row)}}
    results = [Result(each, prepared[each.row or row].right(each)) for each in contenders]
    right = [(each, prepared[each.contender.row or row].timer(each.contender)) for each in results if each.right]
    rewards = prepared[row].arguments["rewards"]
    take_turns(np_add(rewards), right, seconds)
    return Measured(row, 3 * rewards.nbytes, prepared[row].bytes_moved(), results)


def np_add(rewards: Array) -> Timer:
    """On arrays of its own, so that neither finds in the cache what the other has left there."""
    a, b, c = (rewards.copy() for _ in range(3))
    return Timer("add(a, b, out=c)", globals={"add": np.add, "a": a, "b": b, "c": c})


def take_turns(add: Timer, calls: Sequence[tuple[Result, Timer]], seconds: float) -> None:
    """Samples of each in turn until each has used its time; one that takes longer than that gives one sample."""
    add_number, numbers = calls_per_sample(add), [calls_per_sample(call) for _, call in calls]
    left = [seconds * (NUMPY_SHARE if result.contender.backend == "numpy" else 1) for result, _ in calls]
    while any(time_left > 0 for time_left in left):
        for i, (result, call) in enumerate(calls):
            if left[i] > 0:
                start = time.perf_counter()
                result.samples.append((sample(add, add_number), sample(call, numbers[i])))
                left[i] -= time.perf_counter() - start


def calls_per_sample(call: Timer) -> int:
    seconds = call.timeit(1)
    if seconds < SAMPLE_SECONDS:
        seconds = min(call.repeat(5, 1))
    return 1 + int(SAMPLE_SECONDS / seconds)


def sample(call: Timer, number: int) -> float:
    """Seconds per call."""
    if number > 1:
        call.timeit(1)  # what fits into the cache should be there
    return call.timeit(number) / number
