"""Who computes a row of the yardstick, and the goal of each."""

from collections.abc import Sequence

from speed.contenders import Contender, Goal, without_reference
from speed.table import Entry


def contenders(entry: Entry, backends: Sequence[str], num_threads: int) -> list[Contender]:
    if entry.two_threads:
        return [
            contender
            for name in without_reference(backends)
            for contender in (
                Contender(f"{name}, 1 thread", name, 1),
                Contender(f"{name}, 2 threads", name, 2, Goal(1 / 1.6, f"{name}, 1 thread")),
            )
        ]
    plain = [
        Contender(f"{name}, plain", name, num_threads, row=entry.plain)
        for name in backends
        if entry.plain and is_cpp(name)
    ]
    return plain + [
        Contender(name, name, num_threads, goal_of(entry, name, backends, num_threads)) for name in backends
    ]


def is_cpp(backend: str) -> bool:
    return backend.partition(":")[0] == "cpp"


def goal_of(entry: Entry, name: str, backends: Sequence[str], num_threads: int) -> Goal | None:
    """Return the goal of a backend on one thread; there are none for more threads."""
    if num_threads == 1 and entry.goal and is_cpp(name):
        return Goal(entry.goal, f"{name}, plain" if entry.plain else "np.add")
    if num_threads == 1 and entry.numba_goal and name == "numba" and "cpp" in backends:
        return Goal(entry.numba_goal, "cpp")
    return None
