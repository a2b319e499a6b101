"""Where things lie: the repository, the folder of the benchmarks; and what a process of its own finds there."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent


def importing(*places: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Python finds packages in these places first, and then this one."""
    return {**environment, "PYTHONPATH": os.pathsep.join(map(str, (*places, BENCHMARKS)))}


def clean() -> dict[str, str]:
    """Return this environment without the variables that choose a backend or a number of threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FASTGAE_", "OMP_"))}


def found_by(module: str, *arguments: str, place: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON that a module prints, which finds packages in this place; raise ImportError if it lacks some."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    own = importing(place, environment=environment)
    run = subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    if missing := found.pop("missing", None):
        raise ImportError(f"without {', '.join(missing)}")
    return found
