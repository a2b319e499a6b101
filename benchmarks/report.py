"""What the yardstick says: progress, the table for people, JSON for programs, and the machine it all holds for."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastgae
from fastgae._dispatch import usable_cpus
from rows import Row
from timing import Measured, Result

HEADINGS = ("T×N", "backend", "best", "median", "steps/s", "GB/s", "× np.add", "median", "goal", "reached")
WORDS = ("T×N", "backend", "goal", "reached")  # to the left; numbers to the right


class Line(NamedTuple):
    """A line of text for people, and its colour."""

    text: str
    style: str = ""


def track(todo: Sequence[Row]) -> Iterator[Row]:
    """The rows, with progress on stderr: a bar for people, a line per row elsewhere and without rich."""
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


def show(measured: Sequence[Measured], machine: Mapping[str, Any]) -> None:
    """Coloured where stdout is a terminal and rich is installed."""
    lines = [
        Line(", ".join(f"{name} {value}" for name, value in machine.items())),
        Line("steps/s, GB/s and × np.add are of the best sample, and by it goals are judged"),
        *table(measured),
        Line(""),
        *map(Line, summary(measured)),
    ]
    try:
        if not sys.stdout.isatty():
            raise ImportError("colours are for people")
        from rich.console import Console
    except ImportError:
        for line in lines:
            print(line.text)
        return
    console = Console(highlight=False)
    for line in lines:
        console.print(line.text, style=line.style, markup=False, soft_wrap=True)


def table(measured: Sequence[Measured]) -> Iterator[Line]:
    rows = [(entry.row.group, *row) for entry in measured for row in cells(entry)]
    columns = zip(HEADINGS, *(texts for _, texts, _ in rows), strict=True)
    widths = [max(map(len, column)) for column in columns]

    def joined(texts: Sequence[str]) -> str:
        padded = (
            text.ljust(width) if heading in WORDS else text.rjust(width)
            for heading, text, width in zip(HEADINGS, texts, widths, strict=True)
        )
        return "  ".join(padded).rstrip()

    yield Line(joined(HEADINGS), "bold")
    section = above = ""
    for group, (label, *others), style in rows:
        if group != section:
            yield Line(f"\n{group}", "bold")
            section, above = group, ""
        yield Line(joined(["" if label == above else label, *others]), style)
        above = label


def cells(entry: Measured) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts under HEADINGS and the style of every line about a row: np.add, then each contender."""
    label = entry.row.label
    if entry.add_seconds:
        yield (label, "np.add", *shown(entry.add_speeds()), "", "", "", ""), "dim"
    for result in entry.results:
        name, goal, met = result.contender.name, result.contender.goal, entry.met(result)
        aim = str(goal or "")
        if not result.right:
            yield (label, name, *[""] * 6, aim, "WRONG"), "bold red"
            continue
        reached = "" if met is None else "met" if met else f"NOT met: {entry.judged(result):.2f}"
        ratios = rounded(entry.ratio(result)), rounded(result.median_ratio)
        style = "" if met is None else "green" if met else "red"
        yield (label, name, *shown(entry.speeds(result)), *ratios, aim, reached), style


def shown(speeds: Mapping[str, float]) -> tuple[str, str, str, str]:
    rate = speeds["steps_per_second"]
    scale, prefix = (1e9, "G") if rate >= 1e8 else (1e6, "M")
    times = duration(speeds["best_seconds"]), duration(speeds["median_seconds"])
    return *times, f"{rate / scale:.2f} {prefix}", f"{speeds['bytes_per_second'] / 1e9:.1f}"


def duration(seconds: float) -> str:
    scale, unit = (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{seconds * scale:,.2f} {unit}"


def rounded(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def summary(measured: Sequence[Measured]) -> list[str]:
    """How many goals each backend met, and which it did not."""
    verdicts: dict[str, list[tuple[bool, str]]] = {}
    wrong = []
    for entry in measured:
        for result in entry.results:
            met = entry.met(result)
            if met is not None:
                verdicts.setdefault(result.contender.backend, []).append((met, entry.row.name))
            if not result.right:
                wrong.append(f"WRONG: {result.contender.name} differs from numpy on {entry.row.name}")
    lines = []
    for backend, judged in verdicts.items():
        lines.append(f"{backend}: {sum(met for met, _ in judged)} of {len(judged)} goals met")
        lines += [f"  not met: {where}" for met, where in judged if not met]
    return [*lines, *(wrong or ["Every answer has the bits of the numpy backend."])]


def as_json(measured: Sequence[Measured], machine: Mapping[str, Any]) -> str:
    return json.dumps(as_document(measured, machine), indent=2)


def as_document(measured: Sequence[Measured], machine: Mapping[str, Any]) -> dict[str, Any]:
    def outcome(entry: Measured, result: Result) -> dict[str, Any]:
        name, backend, num_threads, goal, *_ = result.contender
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
                "results": [outcome(entry, result) for result in entry.results],
            }
            for entry in measured
        ],
    }


def describe_machine() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "fastgae": fastgae.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "CPU": cpu_model(),
        "usable CPUs": usable_cpus(),
    }
    if hasattr(os, "getloadavg"):
        # Above 0 before anything has run here, others use the CPUs and the memory bus too.
        facts["load"] = round(os.getloadavg()[0], 1)
    for backend in fastgae.backends():
        if backend.available:
            facts[backend.name] = " ".join(filter(None, [backend.version, *backend.targets[:1]]))
        else:
            facts[backend.name] = "missing: " + (backend.why_missing or "").partition("\n")[0]
    return facts


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
