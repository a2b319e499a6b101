"""Who computes a row: a backend, its number of threads, and what it should reach."""

from collections.abc import Sequence
from typing import NamedTuple

import fastgae

from .rows import Row


class Goal(NamedTuple):
    """At most ``limit`` times the time of ``over``, which is np.add or another contender on the row."""

    limit: float
    over: str

    def __str__(self) -> str:
        return f"{self.limit:g} × {self.over}"


class Contender(NamedTuple):
    """A backend on a row, and its goal."""

    name: str
    backend: str
    num_threads: int = 1
    goal: Goal | None = None
    row: Row | None = None  # called instead of the row that is measured


def one_thread(backends: Sequence[str]) -> list[Contender]:
    return [Contender(name, name) for name in backends]


def thread_counts(backends: Sequence[str], cpus: int) -> list[Contender]:
    """Return every backend with 1, 2, 4 … threads, and with one per CPU. The reference has no threads."""
    counts = [*(2**i for i in range(cpus.bit_length()) if 2**i < cpus), cpus]
    return [
        Contender(f"{name}, {count} thread{'s' * (count > 1)}", name, count)
        for name in without_reference(backends)
        for count in counts
    ]


def without_reference(backends: Sequence[str]) -> list[str]:
    return [name for name in backends if name != "numpy"]


def runs_here(*, every_target: bool = False) -> list[str]:
    """Return the backends that can run here, best first; ``every_target`` replaces cpp by each of its CPU targets."""
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
