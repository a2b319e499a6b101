"""The yardstick's table, and how many goals were met."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from speed.contenders import LIMIT, Goal
from speed.measured import Measured, Result
from speed.shown import duration, rounded

from .findings import Finding, slower_defaults

HEADINGS = ("T×N", "backend", "best", "median", "steps/s", "GB/s", "× np.add", "median", "goal", "reached")
WORDS = ("T×N", "backend", "goal", "reached")  # aligned left; numbers are aligned right


class Line(NamedTuple):
    """A line of text, and its colour."""

    text: str
    style: str = ""


def show(measured: Sequence[Measured], findings: Sequence[Finding], machine: Mapping[str, Any]) -> None:
    """Print the table, in colours where stdout is a terminal and rich is installed."""
    lines = [
        Line(", ".join(f"{name} {value}" for name, value in machine.items())),
        Line("steps/s, GB/s and × np.add are those of the best sample, which also decides about the goals"),
        Line("the limit of a row larger than the last-level cache is its bytes at the speed of a streaming addition"),
        *table(measured),
        Line(""),
        *(Line(str(each), "green" if each.met else "red") for each in findings),
        *map(Line, summary(measured)),
        *map(Line, slower_defaults(measured)),
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
    """Yield the texts under HEADINGS and the style of each line of a row: np.add, then every contender."""
    label = entry.row.label
    if entry.add_seconds:
        yield (label, "np.add", *shown(entry.add_speeds()), "", "", "", ""), "dim"
    if entry.limit:
        times = duration(entry.limit), "", f"{entry.row.size / entry.limit / 1e9:.2f} G"
        rate, ratio = f"{entry.call_bytes / entry.limit / 1e9:.1f}", rounded(entry.limit / min(entry.add_seconds))
        yield (label, LIMIT, *times, rate, ratio, "", "", ""), "dim"
    for result in entry.results:
        goal, met = entry.goal(result), entry.met(result)
        name = result.contender.name + (f", {result.offset} B" if result.contender.offsets else "")
        aim = str(goal or "")
        if not result.right:
            yield (label, name, *[""] * 6, aim, "WRONG"), "bold red"
            continue
        reached = "" if goal is None or met is None else f"{'met' if met else 'NOT met'}: {judged(entry, result, goal)}"
        ratios = rounded(entry.ratio(result)), rounded(result.median_ratio)
        style = "" if met is None else "green" if met else "red"
        yield (label, name, *shown(entry.speeds(result)), *ratios, aim, reached), style


def judged(entry: Measured, result: Result, goal: Goal) -> str:
    """Return what the goal limits: a time where it has microseconds of its own, else a ratio."""
    ratio = entry.judged(result)
    return duration(min(result.seconds)) if goal.seconds or ratio is None else f"{ratio:.2f}"


def shown(speeds: Mapping[str, float]) -> tuple[str, str, str, str]:
    rate = speeds["steps_per_second"]
    scale, prefix = (1e9, "G") if rate >= 1e8 else (1e6, "M")
    times = duration(speeds["best_seconds"]), duration(speeds["median_seconds"])
    return *times, f"{rate / scale:.2f} {prefix}", f"{speeds['bytes_per_second'] / 1e9:.1f}"


def summary(measured: Sequence[Measured]) -> list[str]:
    """Say how many goals each backend met, and name those that it did not meet."""
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
