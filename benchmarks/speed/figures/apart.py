"""Measurements in a process of their own, which finds packages in the folder of the tests, and prints JSON."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from speed import places
from speed.machine import describe_machine
from speed.text import duration, markdown


def found_by(module: str, **variables: str) -> dict[str, Any]:
    return places.found_by(module, place=places.ROOT / "tests", environment={**os.environ, **variables})


def print_rows(of_libraries: Mapping[str, Callable[[], Iterable[dict[str, Any]]]]) -> None:
    """Print what these functions measure, as JSON, with the names of the libraries that are missing."""
    warnings.simplefilter("ignore")  # the warnings of a library are not ours to mend
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for library, measure in of_libraries.items():
        try:
            rows += measure()
        except ImportError as error:
            missing.append(library)
            print(f"{library} is not installed: {error}", file=sys.stderr)
    print(json.dumps({"machine": describe_machine(), "rows": rows, "missing": missing}))


def hooks() -> dict[str, Any]:
    """Time each library's own call and the same with the hook of fastgae.compat, on one thread."""
    return found_by("speed.figures.hooks", OMP_NUM_THREADS="1")


def trainers() -> dict[str, Any]:
    """Time them inside running trainers, where two threads would wait for each other on such small networks."""
    return found_by("speed.figures.trainers", OMP_NUM_THREADS="1")


def peers() -> dict[str, Any]:
    """Time the loops of other libraries, on one CPU, to which this process must not be bound."""
    return found_by("speed.figures.peers")


def tokens() -> dict[str, Any]:
    """Time the functions of trainers of language models beside those of fastgae.compat, on one thread."""
    return found_by("speed.figures.tokens", OMP_NUM_THREADS="1")


def suites() -> dict[str, Any]:
    """Run the tests that libraries publish, as they are and with fastgae in place."""
    return found_by("suites")


def table_of_hooks(found: dict[str, Any]) -> str:
    """Write the times as Markdown, the largest gain first."""
    rows = [
        (
            f"{row['library']}: {row['call']}",
            *(duration(row[f"{when}_seconds"]) for when in ("before", "after")),
            f"{row['before_seconds'] / row['after_seconds']:.2g}",
        )
        for row in sorted(found["rows"], key=lambda row: row["after_seconds"] / row["before_seconds"])
    ]
    return markdown(("the library's call", "before", "after", "times faster"), rows)


def table_of_suites(found: dict[str, Any]) -> str:
    """Write how many tests passed, and how many calls of fastgae they made, as Markdown."""
    rows = [[row["library"], *(f"{row[name]:,}" for name in ("before", "after", "calls"))] for row in found["rows"]]
    return markdown(("library", "tests that pass without fastgae", "of these, with fastgae", "calls of fastgae"), rows)
