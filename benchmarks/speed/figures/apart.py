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
