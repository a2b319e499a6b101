"""Numbers and tables as text, and progress on stderr."""

import sys
from collections.abc import Iterator, Sequence

from .rows import Row


def duration(seconds: float, form: str = ",.2f") -> str:
    scale, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * scale:{form}} {unit}"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a table in Markdown, with so many columns aligned to the left and the others to the right."""
    rules = ["---"] * left + ["---:"] * (len(headings) - left)
    table = [headings, rules, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table).replace("|  |", "| |")


def track(todo: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, and print each on stderr."""
    for number, row in enumerate(todo, 1):
        print(f"[{number}/{len(todo)}] {row.name}", file=sys.stderr, flush=True)
        yield row
