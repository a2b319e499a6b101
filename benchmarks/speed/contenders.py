"""Who computes a row: a backend, its number of threads, and what it should reach."""

from collections.abc import Sequence
from typing import NamedTuple

import fastgae

from .rows import Row

# What goals are relative to, besides contenders; references.py times all but np.add.
ADD = "np.add"
LIMIT = "limit"  # what the bytes of the row cost at the speed of memory; np.add for a row that fits into the caches
COPIES = "its copies"  # converting the arguments that fastgae cannot read in place
AS_ADDS = "1 thread as np.add gains"  # one thread's time, divided by what a second stream of np.add gains


class Goal(NamedTuple):
    """At most ``times`` the time of ``over``, and ``seconds`` more.

    ``over`` is one of the names above, or another contender on the row.
    """

    times: float
    over: str
    in_cache: float | None = None  # in place of ``times`` where the row fits into the last-level cache
    seconds: float = 0.0

    def here(self, from_memory: bool) -> "Goal":
        """Return the goal of a row that comes from memory, or that does not."""
        if from_memory or self.over != LIMIT:
            return self
        return self._replace(times=self.times if self.in_cache is None else self.in_cache, over=ADD)

    def __str__(self) -> str:
        times = "" if self.times == 1 else f"{self.times:.3g} × "
        parts = [f"{self.seconds * 1e6:g} us"] if self.seconds else []
        return " + ".join([*parts, *([f"{times}{self.over}"] if self.times else [])])


class Contender(NamedTuple):
    """A backend on a row, and its goal."""

    name: str
    backend: str
    num_threads: int | None = 1
    goal: Goal | None = None
    row: Row | None = None  # called instead of the row that is measured
    offsets: tuple[int, ...] = ()  # bytes between the two outputs; every one is measured, and the slowest counts


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
    """Return the backends that compute on the CPU here, best first; with ``every_target``, cpp as its CPU targets."""
    return [
        name
        for backend in _on_the_cpu()
        for name in (targets_of(backend) if every_target and backend.targets else [backend.name])
    ]


def targets_of(backend: fastgae.BackendInfo) -> list[str]:
    return [f"{backend.name}:{target}" for target in backend.targets]


def default_and_targets() -> list[str]:
    """Return the backends that can run here, best first, and cpp both by itself and by each of its CPU targets."""
    return [name for backend in _on_the_cpu() for name in [backend.name, *targets_of(backend)]]


def _on_the_cpu() -> list[fastgae.BackendInfo]:
    return [backend for backend in fastgae.backends() if backend.available and backend.device == "CPU"]
