"""Where things lie: the repository, the folder of the benchmarks, and the environment of a child process."""

import os
from collections.abc import Mapping
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent


def importing(*places: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Python finds packages in these places first, and then this one."""
    return {**environment, "PYTHONPATH": os.pathsep.join(map(str, (*places, BENCHMARKS)))}


def clean() -> dict[str, str]:
    """Return this environment without the variables that choose a backend or a number of threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FASTGAE_", "OMP_"))}
