"""The tests that libraries publish, run as they are and with fastgae in place."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from speed import places


def measure() -> dict[str, Any]:
    """Run the tests of every library in a process of its own; ImportError names the libraries that are missing."""
    environment = places.importing(places.ROOT / "tests", environment=os.environ)
    command = [sys.executable, "-P", "-m", "suites"]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    if missing := found.pop("missing"):
        raise ImportError(f"without {', '.join(missing)} the table would not be whole")
    return found


def table(found: Mapping[str, Any]) -> str:
    """Write how many tests passed, and how many calls of fastgae they made, as Markdown."""
    rows = [f"| {row['library']} | {row['before']} | {row['after']} | {row['calls']:,} |" for row in found["rows"]]
    head = "| library | tests that pass without fastgae | of these, with fastgae | calls of fastgae |"
    return "\n".join([head, "|---|---:|---:|---:|", *rows])
