"""What no row of calls can show: the cost of the import, shapes at random, and targets that beat the default one."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from speed import places
from speed.measured import Measured
from speed.shown import duration

from .goals import SLOWER, is_cpp

IMPORT_SECONDS, IMPORTS = 0.030, 15
IMPORT = "import numpy, time; t = time.perf_counter(); import fastgae; print(time.perf_counter() - t)"


class Finding(NamedTuple):
    """Something measured beside the rows, and whether it meets its goal."""

    name: str
    measured: str
    goal: str
    met: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.measured}, asked {self.goal}: {'met' if self.met else 'NOT met'}"


def cost_of_import() -> Finding:
    """Time ``import fastgae`` in new processes that have imported NumPy before."""
    command = [sys.executable, "-c", IMPORT]
    runs = [
        float(subprocess.run(command, env=places.clean(), stdout=subprocess.PIPE, check=True, text=True).stdout)
        for _ in range(IMPORTS)
    ]
    goal = f"at most {duration(IMPORT_SECONDS)}"
    return Finding("import fastgae, beyond NumPy's own import", duration(min(runs)), goal, min(runs) <= IMPORT_SECONDS)


def slower_defaults(measured: Sequence[Measured]) -> list[str]:
    """Name each row in which cpp by itself is slower than one of its targets by more than SLOWER allows."""
    lines = [
        f"  {ratio:.2f} × {other}: {entry.row.name} ({role})" if role else f"  {ratio:.2f} × {other}: {entry.row.name}"
        for entry in measured
        for role, other, ratio in against_targets(entry)
        if ratio > SLOWER
    ]
    compared = any(True for entry in measured for _ in against_targets(entry))
    if not compared:
        return []
    title = f"The default target takes more than {SLOWER:g} times as long as another one in {len(lines)} comparisons"
    return [f"{title}{':' if lines else '.'}", *lines]


def against_targets(entry: Measured) -> Iterator[tuple[str, str, float]]:
    """Yield how many times as long as each target cpp by itself takes, on the row and on what it is compared with."""
    best = {each.contender.name: (each.contender.backend, min(each.seconds)) for each in entry.results if each.right}
    for name, (backend, seconds) in best.items():
        role = name.removeprefix(backend)
        default = best.get(f"cpp{role}")
        if is_cpp(backend) and backend != "cpp" and default:
            yield role.removeprefix(", "), backend, default[1] / seconds
