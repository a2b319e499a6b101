"""The source of all random decisions: a seed, or a list that is replayed and made smaller."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Option = TypeVar("Option")


class Choices:
    """Decisions, all of them recorded. The first option is always the simplest one, so 0 makes a case simpler.

    ``order`` is the memory order of a whole call. With "C" or "F", all its arrays are contiguous in that order, as
    short cuts need them. With None, each array has its own layout.
    """

    order: str | None = None

    def __init__(self, case: int | Sequence[int]):
        self.taken: list[int] = []
        self._random = random.Random(case) if isinstance(case, int) else None
        self._replayed = [] if isinstance(case, int) else list(case)

    def below(self, count: int) -> int:
        """Choose one of 0 … count - 1."""
        if self._random is not None:
            number = self._random.randrange(count)
        else:
            place = len(self.taken)
            number = min(self._replayed[place], count - 1) if place < len(self._replayed) else 0
        self.taken.append(number)
        return number

    def pick(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def chance(self, percent: float) -> bool:
        return self.below(1000) >= 1000 - 10 * percent


def parse(text: str) -> int | list[int]:
    """Read a case from the text that ``written`` returns."""
    return int(text) if text.isdecimal() else [int(number) for number in text.split(".") if number]


def written(case: int | Sequence[int]) -> str:
    return str(case) if isinstance(case, int) else ".".join(map(str, case)) + "."


def smallest(taken: Sequence[int], fails: Callable[[list[int]], bool], attempts: int = 600) -> list[int]:
    """Return the smallest list of decisions found that still fails: zeros in long runs first, then smaller numbers."""
    best = list(taken)

    def better(candidate: list[int]) -> bool:
        nonlocal best, attempts
        attempts -= 1
        if attempts < 0 or candidate == best or not fails(candidate):
            return False
        best = candidate
        return True

    while best and best[-1] == 0:
        best.pop()
    run = len(best)
    while run:
        for start in range(0, len(best), run):
            better([*best[:start], *[0] * len(best[start : start + run]), *best[start + run :]])
        run //= 2
    progress = True
    while progress and attempts > 0:
        progress = False
        for place in range(len(best)):
            for smaller in (0, 1, best[place] // 2, best[place] - 1):
                if 0 <= smaller < best[place]:
                    progress |= better([*best[:place], smaller, *best[place + 1 :]])
    while best and best[-1] == 0:
        best.pop()
    return best
