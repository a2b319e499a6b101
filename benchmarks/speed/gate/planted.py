"""Plant regressions in a copy of the package, one at a time, and see whether the gate is red."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fastgae
from speed import places

from .accepted import Line


class Plant(NamedTuple):
    what: str
    file: str
    old: str
    new: str
    check: str
    red: str  # in the name of a row that must be red


SHORT_CUT = "if chosen.short_cut is not None:"
PLANTS = (
    Plant(
        "arrays of rank 3 decline the short cut",
        "_engine/run.py",
        SHORT_CUT,
        "if chosen.short_cut is not None and getattr(given[0], 'ndim', 0) != 3:",
        "instructions",
        "rank 3",
    ),
    Plant(
        "every call is checked before the short cut",
        "_engine/run.py",
        SHORT_CUT,
        f"_check_given(function, given)\n    {SHORT_CUT}",
        "instructions",
        "plain: 128×8",
    ),
    Plant(
        "memory of results is not used again",
        "_support/memory.py",
        "core.set_recycled_limit(limit)",
        "core.set_recycled_limit(0)",
        "counts",
        "faults",
    ),
    Plant(
        "Numba's kernels are compiled in every process",
        "_backends/numba/compiled.py",
        "kernel._cache = _Cache(function)",
        "pass",
        "counts",
        "compilations",
    ),
    Plant(
        "verl's hook copies the rewards",
        "compat/verl.py",
        "return gae(token_level_rewards,",
        "return gae(token_level_rewards.copy(),",
        "counts",
        "verl hook",
    ),
)


def check() -> Iterator[Line]:
    package = Path(fastgae.__file__).parent
    for plant in PLANTS:
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(package, Path(folder, package.name), ignore=shutil.ignore_patterns("__pycache__"))
            file = copy / plant.file
            file.write_text(file.read_text(encoding="utf-8").replace(plant.old, plant.new), encoding="utf-8")
            command = [sys.executable, str(places.BENCHMARKS), "gate", plant.check]
            variables = places.importing(Path(folder), environment=places.clean())
            run = subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
        red = [line for line in run.stdout.splitlines() if line.startswith("RED")]
        seen = run.returncode == 1 and any(plant.red in line for line in red)
        yield Line(plant.what, red[0] if seen else f"{plant.check} is not red where {plant.red} is", red=not seen)
