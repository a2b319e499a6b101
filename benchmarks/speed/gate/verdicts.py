"""The report of a check: a table in text and in Markdown, and whether it is red."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

RED = "RED"


class Line(NamedTuple):
    """A line of the table: its cells, and the verdict that follows them."""

    cells: tuple[str, ...]
    verdict: str = ""

    @property
    def red(self) -> bool:
        return self.verdict.startswith(RED)


class Report(NamedTuple):
    """The outcome of a check: its title, the headings of its columns, its lines, and notes below them."""

    title: str
    headings: tuple[str, ...]
    lines: Sequence[Line]
    notes: Sequence[str] = ()

    @property
    def red(self) -> bool:
        return any(line.red for line in self.lines)

    @property
    def summary(self) -> str:
        red = sum(line.red for line in self.lines)
        return f"{self.title}: {f'{red} of {len(self.lines)} RED' if red else f'{len(self.lines)} rows, none red'}"


def as_text(report: Report) -> str:
    table = [(*report.headings, ""), *((*line.cells, line.verdict) for line in report.lines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def padded(cells: tuple[str, ...]) -> str:
        first, *middle, last = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        numbers = (cell.strip().rjust(len(cell)) for cell in middle)
        return "  ".join([first, *numbers, last]).rstrip()

    rows = map(padded, table) if report.lines else ()
    return "\n".join([report.summary, *(f"  {row}" for row in rows), *report.notes, ""])


def as_markdown(report: Report) -> str:
    """Write the red rows in sight, and all rows folded away."""

    def table(lines: Sequence[Line]) -> Iterator[str]:
        yield _row((*report.headings, ""))
        yield _row(("---", *["---:"] * (len(report.headings) - 1), "---"))
        yield from (_row((*line.cells, line.verdict)) for line in lines)

    red = [line for line in report.lines if line.red]
    shown = ["", *table(red)] if red else []
    folded = (
        ["<details><summary>every row</summary>", "", *table(report.lines), "", "</details>"] if report.lines else []
    )
    return "\n".join([f"### {report.summary}", *shown, "", *folded, *report.notes, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
