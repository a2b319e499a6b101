"""What is called on a row, by whom, and whether the answer is right."""

import functools
from collections.abc import Callable, Sequence
from timeit import Timer
from typing import Any

import numpy as np

import fastgae
from fastgae._dispatch import usable_cpus
from rollouts import outputs_like, same_bits
from rows import ADVANTAGES, FRESH, Contender, Row

POSITIONAL = ("rewards", "values")


class Prepared:
    """A row ready to be called: its arrays, and the answer that every backend should give, to the bit."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.function: Callable[..., fastgae.GAEResult] = getattr(fastgae, row.function)
        self.arguments = row.arguments()
        advantages, returns = outputs_like(self.arguments["rewards"])
        self.outputs = [advantages] if row.outputs == ADVANTAGES else [advantages, returns]
        self.out = None if row.outputs == FRESH else (advantages, None if row.outputs == ADVANTAGES else returns)

    @functools.cached_property
    def expected(self) -> fastgae.GAEResult:
        return self.function(**self.arguments, backend="numpy", num_threads=1)

    def right(self, contender: Contender) -> bool:
        """This is also where Numba compiles."""
        if contender.backend == "numpy":
            return True  # and too slow on long rollouts to compute them once more
        for array in self.outputs:
            array.fill(np.nan)
        return same_bits(self.call(contender)(), self.expected)

    def call(self, contender: Contender) -> Callable[[], fastgae.GAEResult]:
        called: Callable[[], fastgae.GAEResult] = eval(f"lambda: {self._statement(contender)}", self._names())
        return called

    def timer(self, contender: Contender) -> Timer:
        return Timer(self._statement(contender), globals=self._names())

    def bytes_moved(self) -> int:
        """What is read once and written once."""
        given = [array for array in self.arguments.values() if isinstance(array, np.ndarray)]
        return sum(array.nbytes for array in [*given, *self.outputs])

    def _names(self) -> dict[str, Any]:
        return {"function": self.function, **self.arguments, **({"out": self.out} if self.out else {})}

    def _statement(self, contender: Contender) -> str:
        """Written out as a user would: a call through partial costs more."""
        passed = [name if name in POSITIONAL else f"{name}={name}" for name in self._names() if name != "function"]
        backend = [f"backend={contender.backend!r}"] if contender.backend else []
        return f"function({', '.join([*passed, f'num_threads={contender.num_threads}', *backend])})"


prepared = functools.lru_cache(maxsize=1)(Prepared)  # of one row after the other


def one_thread(backends: Sequence[str]) -> list[Contender]:
    return [Contender(name, name, 1, None) for name in backends]


def thread_counts(backends: Sequence[str]) -> list[Contender]:
    """Powers of two up to the CPUs that this process may use, and those; the reference has no threads."""
    cpus = usable_cpus()
    counts = [*(2**i for i in range(cpus.bit_length()) if 2**i < cpus), cpus]
    return [
        Contender(f"{name}, {count} thread{'s' * (count > 1)}", name, count, None)
        for name in backends
        if name != "numpy"
        for count in counts
    ]


def runs_here(*, every_target: bool = False) -> list[str]:
    """The backends that can run here, best first, and in place of cpp all its CPU targets if asked for."""
    return [
        name
        for backend in fastgae.backends()
        if backend.available
        for name in (
            [f"{backend.name}:{target}" for target in backend.targets]
            if every_target and backend.targets
            else [backend.name]
        )
    ]
