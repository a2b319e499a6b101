"""Numbers as text, progress on stderr, and measured rows as JSON."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .measured import Measured, Result
from .rows import Row


def duration(seconds: float) -> str:
    scale, unit = (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{seconds * scale:,.2f} {unit}"


def rounded(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def track(todo: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows and show progress on stderr: a bar on a terminal with rich, else one line per row."""
    try:
        if not sys.stderr.isatty():
            raise ImportError("a bar is for people")
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        for number, row in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}] {row.name}", file=sys.stderr, flush=True)
            yield row
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(todo))
        for row in todo:
            progress.update(task, description=row.name)
            yield row
            progress.advance(task)


def as_document(measured: Sequence[Measured], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured as types of JSON."""

    def outcome(entry: Measured, result: Result) -> dict[str, Any]:
        name, backend, num_threads, *_ = result.contender
        goal = entry.goal(result)
        named = {"name": name, "backend": backend, "num_threads": num_threads, "right": result.right}
        if not result.right:
            return named
        return {
            **named,
            **entry.speeds(result),
            "ratio_to_add_best": entry.ratio(result),
            "ratio_to_add_median": result.median_ratio,
            "goal": goal and goal._asdict(),
            "ratio_judged": entry.judged(result),
            "met": entry.met(result),
        }

    return {
        "machine": machine,
        "judged_by": "best sample over best sample",
        "rows": [
            {
                **asdict(entry.row),
                "add": entry.add_speeds() if entry.add_seconds else None,
                "from_memory": entry.from_memory,
                "limit_seconds": entry.limit,
                "results": [outcome(entry, result) for result in entry.results],
            }
            for entry in measured
        ],
    }
