"""Who computes a row of the yardstick, and the goal of each."""

from collections.abc import Sequence

from speed.contenders import Contender, Goal, without_reference
from speed.table import CPP, PLAIN, Entry

SLOWER = 1.05  # the default target counts as slower than another one from here on; less may be noise


def contenders(entry: Entry, backends: Sequence[str], num_threads: int) -> list[Contender]:
    """Return every backend on the row, after what its goal compares it with."""
    if entry.two_threads:
        return [
            Contender(f"{name}, {count} thread{'s' * (count > 1)}", name, count, entry.goal if count > 1 else None)
            for name in without_reference(backends)
            for count in (1, 2)
        ]
    plain = [
        Contender(f"{name}, plain", name, num_threads, row=entry.plain)
        for name in backends
        if entry.plain and is_cpp(name)
    ]
    named = {name: goal_of(entry, name, backends, num_threads) for name in backends}
    return plain + [
        Contender(name, name, num_threads, goal, offsets=entry.offsets)
        for name, goal in named.items()
        if goal or not entry.offsets  # sixteen times the work, so only where it decides something
    ]


def is_cpp(backend: str) -> bool:
    return backend.partition(":")[0] == CPP


def goal_of(entry: Entry, name: str, backends: Sequence[str], num_threads: int) -> Goal | None:
    """Return the goal of a backend on one thread. The baseline target has none beside wider ones."""
    if num_threads != 1 or (name == "cpp:baseline" and CPP in backends):
        return None
    if is_cpp(name) and entry.goal:
        return entry.goal._replace(over=f"{name}, plain") if entry.goal.over == PLAIN else entry.goal
    if name == "numba" and entry.numba_goal and (entry.numba_goal.over in backends or not entry.numba_goal.over):
        return entry.numba_goal
    return None
