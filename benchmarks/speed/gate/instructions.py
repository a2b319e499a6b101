"""The third check of the gate: instructions per call as cachegrind counts them, which no noise can change.

counted.py runs every row in two processes that differ only in the number of calls; the difference of their counts
belongs to the calls. It is the same in every run, and to one per cent wherever the package lies. It depends on the
compiler, Python, NumPy and the C library, so each combination of these has its own accepted counts. Valgrind does not
know AVX-512 and counts the AVX2 kernels instead.
"""

import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fastgae
from speed import places

from .verdicts import RED, Line, Report

FILE = Path(__file__).with_name("instructions.json")
ALLOWED = 1.02
LARGE = 100_000  # smaller counts vary a little with the place of their arrays
HEADINGS = ("row", "target", "before", "now", "change")
Counts = dict[str, dict[str, int]]  # target -> row -> instructions
SETTINGS = {
    "PATH": os.defpath,
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # A call reuses what the one before it freed. Without this, a count depends on what else lies in the heap.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_max=1048576",
}


def check() -> Report:
    if why := why_not():
        return Report("instructions", HEADINGS, [], [f"Not counted: {why}."])
    counts, accepted = count(), read().get(key())
    notes = [f"For {key()}."]
    if accepted is None:
        notes += ["There are no accepted counts for this: `python benchmarks/gate.py instructions --accept`."]
    return Report("instructions", HEADINGS, [*dispatch(counts), *compared(accepted or {}, counts)], notes)


def accept() -> str:
    """Write the present counts; return the old and the new number of each row that changed."""
    if why := why_not():
        sys.exit(f"nothing to accept: {why}")
    before, counts = read(), count()
    lines = [
        "  ".join(line.cells) for line in compared(before.get(key(), {}), counts) if line.cells[2] != line.cells[3]
    ]
    everything = {**before, key(): counts}
    FILE.write_text(json.dumps(everything, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    return "\n".join([key(), *(lines or ["every count as before"])])


def read() -> dict[str, Counts]:
    return dict(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.exists() else {}


def why_not() -> str | None:
    missing = [name for name in ("valgrind", "setarch") if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian and Ubuntu: apt-get install valgrind)"
    return None if fastgae.backends()[0].available else "the compiled backend cannot run here"


def key() -> str:
    """Return everything outside this repository that a count depends on."""
    library = "".join(platform.libc_ver())
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, {library}"
    return f"{fastgae.backends()[0].version} for {platform.machine()}, {versions}"


def count(place: Path = Path(fastgae.__file__).parents[1]) -> Counts:
    """Return the counts of the fastgae in that place."""
    counts: Counts = {}
    with tempfile.TemporaryDirectory() as directory:
        command = [
            *("setarch", "-R", "valgrind", "--tool=cachegrind", "--cache-sim=no"),
            *(f"--cachegrind-out-file={directory}/%p", f"--log-file={directory}/log"),
            *(sys.executable, "-m", "speed.gate.counted"),
        ]
        # The working directory is empty, so that nothing in it is imported instead.
        variables = places.importing(place, environment=SETTINGS)
        run = subprocess.run(command, cwd=directory, env=variables, stdout=subprocess.PIPE, text=True)
        if run.returncode:
            sys.exit("counted.py failed under valgrind")
        for entry in map(json.loads, run.stdout.splitlines()):
            totals = [total(Path(directory, str(process))) for process in entry["processes"]]
            # What happens once in a process, such as a cleanup of malloc, is in one of the differences at most.
            fewest = min(many - few for few, many in itertools.pairwise(totals))
            counts.setdefault(entry["target"], {})[entry["row"]] = round(fewest / entry["calls"])
    return counts


def total(file: Path) -> int:
    """Return the instructions of a whole process; the last line of the file is "summary:" and that number."""
    return int(file.read_text(errors="replace").splitlines()[-1].split()[1])


def compared(before: Counts, now: Counts) -> list[Line]:
    return [
        compare(row, target, before.get(target, {}).get(row), counted)
        for target, rows in now.items()
        for row, counted in rows.items()
    ]


def compare(row: str, target: str, before: int | None, now: int) -> Line:
    if before is None:
        return Line((row, target, "none", f"{now:,}", ""))
    change = now / before
    verdict = RED if change > ALLOWED else "fewer: accept them" if change < 1 / ALLOWED else ""
    return Line((row, target, f"{before:,}", f"{now:,}", f"{change - 1:+.2%}"), verdict)


def dispatch(counts: Counts) -> list[Line]:
    """Compare a call that names no target with one that names the best target; this needs no accepted counts."""
    best = next((target for target in counts if target.startswith("cpp:")), None)
    chosen: dict[str, Any] = counts.get("cpp", {})
    return [
        compare(row, f"cpp against {best}", counts[best][row], counted)
        for row, counted in chosen.items()
        if best is not None and counted >= LARGE
    ]
