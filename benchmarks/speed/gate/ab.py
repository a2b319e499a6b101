"""The fourth check of the gate: two commits built side by side and timed in turn.

Both are measured by these files, not by the benchmarks of either commit.

Each process gives the best time of every row. A row is red where every process of HEAD was slower than every one of
BASE by more than ALLOWED, in each of ROUNDS rounds. Where valgrind is installed, instructions are compared too; that
needs no accepted counts.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from speed import places

from . import instructions
from .verdicts import RED, Line, Report

PROCESSES, ROUNDS = 6, 3  # processes of each commit in a round; a row is red only if it is red in every round
ALLOWED = 1.05
Samples = dict[str, list[float]]


def check(base: str, head: str) -> list[Report]:
    with tempfile.TemporaryDirectory() as directory, built(base, head, Path(directory)) as (old, new):
        reports = [times(base, head, old, new)]
        if not instructions.why_not():
            counts = [instructions.count(place) for place in (old, new)]
            title = f"instructions of {base} and {head}"
            reports.append(Report(title, instructions.HEADINGS, instructions.compared(*counts)))
    return reports


@contextmanager
def built(base: str, head: str, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Install each revision; the two places differ in nothing but fastgae."""
    places = directory / "base", directory / "head"
    builds = [build(revision, place) for revision, place in zip((base, head), places, strict=True)]
    for revision, process in zip((base, head), builds, strict=True):
        if process.wait():
            sys.exit(f"{revision} does not build")
    yield places


def build(revision: str, place: Path) -> subprocess.Popen[bytes]:
    """Start pip on a copy of the revision's files, so that both revisions build at the same time."""
    source = place.with_name(f"{place.name}-source")
    source.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=places.ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    return subprocess.Popen(
        [*pip, "--target", str(place), str(source)], env={**places.clean(), "FASTGAE_BUILD_EXT": "require"}
    )


def times(base: str, head: str, old: Path, new: Path) -> Report:
    samples: tuple[Samples, Samples] = {}, {}
    names: Sequence[str] = ()  # all
    for _ in range(ROUNDS):
        for turn in range(PROCESSES):
            order = ((old, samples[0]), (new, samples[1]))
            for place, found in order if turn % 2 else reversed(order):
                for name, seconds in sampled(place, names).items():
                    found.setdefault(name, []).extend([] if seconds is None else [seconds])
        lines = [line(name, samples[0].get(name, []), seconds) for name, seconds in samples[1].items()]
        names = [line.cells[0] for line in lines if line.red]
        if not names:
            break
    return Report(f"A/B, {base} and {head}", ("row", base, head, "best over best"), lines)


def sampled(place: Path, names: Sequence[str]) -> dict[str, float | None]:
    command = [sys.executable, "-m", "speed.gate.ab_sample", str(place), *names]
    environment = places.importing(place, environment=places.clean())
    run = subprocess.run(command, cwd=place, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(run.stdout))


def line(name: str, base: Sequence[float], head: Sequence[float]) -> Line:
    """Compare the ranges; ALLOWED is more than the place of code in memory can change."""
    if not base or not head:
        return Line((name, shown(base), shown(head), ""), "only one of them has it")
    slower, faster = min(head) > ALLOWED * max(base), ALLOWED * max(head) < min(base)
    ratio = f"{min(head) / min(base):.3f}"
    return Line((name, shown(base), shown(head), ratio), RED if slower else "faster" if faster else "")


def shown(seconds: Sequence[float]) -> str:
    return f"{min(seconds) * 1e6:.2f} to {max(seconds) * 1e6:.2f} us" if seconds else ""
