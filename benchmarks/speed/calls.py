"""The call of a contender on a row, and whether its answer is right."""

import copy
import functools
import itertools
from collections.abc import Callable
from timeit import Timer
from typing import Any

import numpy as np

import fastgae

from .caches import beyond_caches
from .contenders import Contender
from .rollouts import Array, same_bits
from .rows import ADVANTAGES, FRESH, Row
from .timing import Seconds, perf_counter

POSITIONAL = ("rewards", "values")


class Prepared:
    """A row ready to be called: its arrays, and the answer that every backend should give, to the bit."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.function: Callable[..., Any] = getattr(fastgae, row.function)
        self.arguments = row.arguments()
        self.first: Array = next(iter(self.arguments.values()))  # rewards, or x of a reverse scan
        # Writing NaN maps their pages before the clock starts.
        advantages, returns = (np.full_like(self.first, np.nan) for _ in range(2))
        self.outputs = [advantages] if row.outputs == ADVANTAGES else [advantages, returns]
        self.out = None if row.outputs == FRESH else (advantages, None if row.outputs == ADVANTAGES else returns)

    @functools.cached_property
    def expected(self) -> Any:
        return self.function(**self.arguments, backend="numpy", num_threads=1)

    def right(self, contender: Contender) -> bool:
        """Return whether the contender gives the bits of the reference. Numba compiles in this call."""
        if contender.backend == "numpy":
            return True  # the reference is too slow on long rollouts to compute them twice
        for array in self.outputs:
            array.fill(np.nan)
        return same_bits(self.call(contender)(), self.expected)

    def call(self, contender: Contender) -> Callable[[], Any]:
        called: Callable[[], Any] = eval(f"lambda: {self._statement(contender)}", self._names())
        return called

    def timer(self, contender: Contender, clock: Seconds = perf_counter) -> Timer:
        return Timer(self._statement(contender), timer=clock, globals=self._names())

    def bytes_moved(self) -> int:
        """Return the bytes of all arrays that are read or written."""
        given = [array for array in self.arguments.values() if isinstance(array, np.ndarray)]
        return sum(array.nbytes for array in [*given, *self.outputs])

    @functools.cached_property
    def copies(self) -> int:
        """Return how many rollouts take turns: so many that the caches have forgotten the first one after the last."""
        return 2 + beyond_caches(1) // self.bytes_moved() if self.row.cold else 1

    def _passed(self) -> dict[str, Any]:
        return {**self.arguments, **({"out": self.out} if self.out else {})}

    def _names(self) -> dict[str, Any]:
        if self.copies == 1:
            return {"function": self.function, **self._passed()}
        turns = itertools.cycle([copy.deepcopy(self._passed()) for _ in range(self.copies)])
        return {"function": self.function, "turn": turns.__next__}

    def _statement(self, contender: Contender) -> str:
        """Write the call out as a user would, because a call through ``partial`` costs more."""
        passed = [name if name in POSITIONAL else f"{name}={name}" for name in self._passed()]
        if self.copies > 1:
            passed = ["**turn()"]
        return (
            f"function({', '.join([*passed, f'num_threads={contender.num_threads}'])}, backend={contender.backend!r})"
        )


prepared = functools.lru_cache(maxsize=1)(Prepared)  # rows are measured one after the other
