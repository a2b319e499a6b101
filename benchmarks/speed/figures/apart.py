"""Measurements in a process of their own, which prints what it found as JSON."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from speed import places


def found_by(module: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a module that finds packages in the folder of the tests; ImportError names the libraries that are missing."""
    command = [sys.executable, "-P", "-m", module]
    own = places.importing(places.ROOT / "tests", environment=environment)
    run = subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    if missing := found.pop("missing"):
        raise ImportError(f"without {', '.join(missing)} the table would not be whole")
    return found
