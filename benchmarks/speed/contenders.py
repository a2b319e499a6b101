"""Who computes a row: a backend, and its number of threads."""

from collections.abc import Sequence
from typing import NamedTuple

import fastgae


class Contender(NamedTuple):
    name: str
    backend: str
    num_threads: int | None = 1


def one_thread(backends: Sequence[str]) -> list[Contender]:
    return [Contender(name, name) for name in backends]


def thread_counts(cpus: int) -> list[Contender]:
    """Return every compiled backend with 1, 2, 4 … threads, and with one per CPU."""
    counts = [*(2**i for i in range(cpus.bit_length()) if 2**i < cpus), cpus]
    return [
        Contender(f"{name}, {count} thread{'s' * (count > 1)}", name, count)
        for name in compiled_here()
        for count in counts
    ]


def compiled_here() -> list[str]:
    """Return the backends that run here without NumPy's, the reference, which has no threads."""
    return [name for name in runs_here() if name != "numpy"]


def runs_here(*, every_target: bool = False) -> list[str]:
    """Return the backends that compute on the CPU here, best first; with ``every_target``, cpp as its CPU targets."""
    here = [backend for backend in fastgae.backends() if backend.available and backend.device == "CPU"]
    return [name for backend in here for name in (every_target and targets_of(backend)) or [backend.name]]


def targets_of(backend: fastgae.BackendInfo) -> list[str]:
    return [f"{backend.name}:{target}" for target in backend.targets]
