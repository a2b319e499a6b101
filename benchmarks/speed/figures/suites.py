"""The tests that libraries publish, run as they are and with fastgae in place."""

import os
from collections.abc import Mapping
from typing import Any

from speed.figures import apart


def measure() -> dict[str, Any]:
    """Run the tests of every library in a process of its own; ImportError names the libraries that are missing."""
    return apart.found_by("suites", os.environ)


def table(found: Mapping[str, Any]) -> str:
    """Write how many tests passed, and how many calls of fastgae they made, as Markdown."""
    rows = [f"| {row['library']} | {row['before']} | {row['after']} | {row['calls']:,} |" for row in found["rows"]]
    head = "| library | tests that pass without fastgae | of these, with fastgae | calls of fastgae |"
    return "\n".join([head, "|---|---:|---:|---:|", *rows])
