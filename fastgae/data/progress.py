"""Show the progress of a computation: a bar on a terminal, and a line for every tenth elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

Advance: TypeAlias = Callable[[int], None]
TENTHS = 10


@contextmanager
def progress_of(what: str, total: int, shown: bool, unit: str = "steps") -> Iterator[Advance]:
    """Return a function that takes the number of steps, or of other units, since its previous call."""
    console = Console(stderr=True)
    if not shown:
        yield lambda steps: None
    elif console.is_terminal:
        what_column, bar_column = TextColumn("{task.description}"), BarColumn(None)
        columns = (what_column, bar_column, TaskProgressColumn(), _Rate(unit), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(what, total=total)
            yield lambda steps: bar.advance(task, steps)
    else:
        yield _lines(what, total, unit)


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__(Column(no_wrap=True))
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(
            f"{task.completed:,.0f} {self._unit}, {(task.finished_speed or task.speed or 0) / 1e6:.1f} million/s"
        )


def _lines(what: str, total: int, unit: str) -> Advance:
    began, done, tenth = time.monotonic(), 0, 0

    def advance(steps: int) -> None:
        nonlocal done, tenth
        done += steps
        reached = done * TENTHS // total
        if reached == tenth:
            return
        tenth, seconds = reached, max(time.monotonic() - began, 1e-9)
        left = seconds * (total - done) / done
        rate = done / seconds / 1e6
        print(
            f"{what}: {done:,} of {total:,} {unit}, {rate:.1f} million/s, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    return advance
