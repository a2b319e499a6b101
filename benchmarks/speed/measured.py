"""A row measured: every answer checked, then np.add and every contender timed in turn."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .caches import from_memory
from .calls import Prepared
from .contenders import ADD, AS_ADDS, LIMIT, Contender, Goal
from .references import ADD_BYTES, TIMERS
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
    offset: int = 0  # bytes between the two outputs, beyond what ends a page

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
    references: Mapping[str, float] = field(default_factory=dict)  # the best seconds of each that a goal names

    @property
    def from_memory(self) -> bool:
        return from_memory(self.call_bytes)

    @property
    def limit(self) -> float | None:
        """Return the seconds in which this machine's memory moves the bytes of the row."""
        if LIMIT not in self.references:
            return None
        return self.references[LIMIT] * self.call_bytes / (ADD_BYTES * self.row.size)

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

    def goal(self, result: Result) -> Goal | None:
        """Return the goal of a right answer, as it is where the row's data lie."""
        goal = result.contender.goal
        return goal.here(self.from_memory) if goal and result.right else None

    def judged(self, result: Result) -> float | None:
        """Return the ratio that the goal limits, or None where there is no such goal."""
        goal = self.goal(result)
        over = self._seconds_over(goal, result) if goal else None
        return over and (min(result.seconds) - (goal.seconds if goal else 0)) / over

    def met(self, result: Result) -> bool | None:
        goal = self.goal(result)
        if goal is None:
            return None
        over = self._seconds_over(goal, result)
        if over is None and goal.times:
            return None
        return min(result.seconds) <= goal.times * (over or 0) + goal.seconds

    def _seconds_over(self, goal: Goal, result: Result) -> float | None:
        """Return the seconds of what a goal is relative to, or None where they are not known."""
        if goal.over == ADD:
            return min(self.add_seconds)
        if goal.over == LIMIT:
            return self.limit
        if goal.over == AS_ADDS:
            one = self._best_of(lambda other: other.num_threads == 1 and other.backend == result.contender.backend)
            return one and one * min(1, self.references[AS_ADDS] / min(self.add_seconds))
        if goal.over in TIMERS:
            return self.references[goal.over]
        return self._best_of(lambda other: other.name == goal.over)

    def _best_of(self, wanted: Callable[[Contender], bool]) -> float | None:
        return next((min(other.seconds) for other in self.results if other.right and wanted(other.contender)), None)


def measure(row: Row, contenders: Sequence[Contender], seconds: float) -> Measured:
    """Time the contenders for so many seconds each; wrong ones are not timed."""
    prepared = {called: Prepared(called) for called in {row, *(each.row for each in contenders if each.row)}}
    add, call_bytes = Clock(np_add(prepared[row].first)), prepared[row].bytes_moved()
    goals = [each.goal.here(from_memory(call_bytes)) for each in contenders if each.goal]
    wanted = [name for name in TIMERS if any(goal.over == name for goal in goals)]
    attempts = [
        (each, offset, prepared[row].apart(offset) if each.offsets else prepared[each.row or row])
        for each in contenders
        for offset in each.offsets or (0,)
    ]
    results = [Result(each, call.right(each), offset=offset) for each, offset, call in attempts]
    groups = [(Clock(TIMERS[name](prepared[row])),) for name in wanted]
    shares = [seconds] * len(wanted)
    for result, (each, _, call) in zip(results, attempts, strict=True):
        groups += [(add, Clock(call.timer(each)))] if result.right else []
        shares += [seconds * share(each)] if result.right else []
    samples = iter(in_turn(groups, shares))
    references = {name: min(best for (best,) in next(samples)) for name in wanted}
    for result in results:
        result.samples = next(samples) if result.right else []
    return Measured(row, 3 * prepared[row].first.nbytes, call_bytes, slowest(results), references)


def share(contender: Contender) -> float:
    """Return which part of the seconds a contender gets: less for the reference, and for each of many attempts."""
    return NUMPY_SHARE if contender.backend == "numpy" else 1 / (len(contender.offsets) or 1) ** 0.5


def slowest(results: Sequence[Result]) -> list[Result]:
    """Return one result of each contender: a wrong one, or the one whose best sample is the slowest."""
    one = {}
    for result in results:
        kept = one.setdefault(result.contender, result)
        if kept.right and (not result.right or min(result.seconds) > min(kept.seconds)):
            one[result.contender] = result
    return list(one.values())
