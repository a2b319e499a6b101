"""A row measured: every answer checked, then np.add and every contender timed in turn."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .calls import Prepared
from .contenders import Contender
from .rows import Row
from .timing import Clock, in_turn, np_add

NUMPY_SHARE = 0.2  # the reference gets this part of the seconds of the others, because it has no goal


@dataclass
class Result:
    """The samples of a contender, and whether its answer is right."""

    contender: Contender
    right: bool
    # Seconds per call of np.add and of the contender, sampled one right after the other.
    samples: list[tuple[float, ...]] = field(default_factory=list)

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
        """Return the rates of the best sample, and the median time."""
        best = min(seconds)
        return {
            "best_seconds": best,
            "median_seconds": statistics.median(seconds),
            "samples": len(seconds),
            "steps_per_second": self.row.size / best,
            "bytes_per_second": size / best,
        }

    def ratio(self, result: Result) -> float:
        """Return the best time over the best time of np.add."""
        return min(result.seconds) / min(self.add_seconds)

    def judged(self, result: Result) -> float | None:
        """Return the ratio that the goal limits, or None where there is no goal or a wrong answer."""
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
    """Time the contenders for so many seconds each; wrong ones are not timed."""
    prepared = {called: Prepared(called) for called in {row, *(each.row for each in contenders if each.row)}}
    results = [Result(each, prepared[each.row or row].right(each)) for each in contenders]
    right = [result for result in results if result.right]
    rewards = prepared[row].arguments["rewards"]
    add = Clock(np_add(rewards))
    groups = [(add, Clock(prepared[result.contender.row or row].timer(result.contender))) for result in right]
    shares = [seconds * (NUMPY_SHARE if result.contender.backend == "numpy" else 1) for result in right]
    for result, samples in zip(right, in_turn(groups, shares), strict=True):
        result.samples = samples
    return Measured(row, 3 * rewards.nbytes, prepared[row].bytes_moved(), results)
