"""Two commits, built side by side, and timed and counted in turn. Exit status 1 if HEAD is slower than BASE.

These files measure both, not the benchmarks of either commit. A row is red where each of the processes of HEAD was
slower than each of BASE by more than five per cent, in each of three rounds; and where HEAD takes two per cent more
instructions.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from speed import places
from speed.text import duration

from . import instructions
from .accepted import Line, judged, left_out
from .alone import of_process

PROCESSES, ROUNDS = 6, 3  # processes of each commit in a round; a row is red only if it is red in every round
ALLOWED = 1.05  # more than the place of code in memory can change
Samples = dict[str, list[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("head", metavar="HEAD", help="a commit")
    args = parser.parse_args(arguments)
    for revision in (args.base, args.head):
        known = ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
        if subprocess.run(known, cwd=places.ROOT, stdout=subprocess.DEVNULL).returncode:
            parser.error(f"no such commit: {revision}")
    with tempfile.TemporaryDirectory() as directory, built(args.base, args.head, Path(directory)) as (old, new):
        return judged(check(old, new))


@contextmanager
def built(base: str, head: str, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Install each revision; the two places differ in nothing but fastgae."""
    places = directory / "base", directory / "head"
    builds = [build(revision, place) for revision, place in zip((base, head), places, strict=True)]
    for revision, process in zip((base, head), builds, strict=True):
        if process.wait():
            for other in builds:
                other.kill()
                other.wait()  # it writes into a folder that is removed
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


def check(old: Path, new: Path) -> Iterator[Line]:
    yield from times(old, new)
    if why := instructions.why_not():
        yield left_out("instructions", why)
    else:
        yield from instructions.compared(*map(instructions.count, (old, new)))


def times(old: Path, new: Path) -> list[Line]:
    samples: tuple[Samples, Samples] = {}, {}
    names: Sequence[str] = ()  # all
    for _ in range(ROUNDS):
        for turn in range(PROCESSES):
            order = ((old, samples[0]), (new, samples[1]))
            for place, found in order if turn % 2 else reversed(order):
                for name, seconds in of_process("times", *names, place=place).items():
                    found.setdefault(name, []).append(seconds)
        lines = [line(name, *(found.get(name, []) for found in samples)) for name in {**samples[1], **samples[0]}]
        names = [line.what for line in lines if line.red]
        if not names:
            break
    return lines


def line(name: str, base: Sequence[float], head: Sequence[float]) -> Line:
    """Compare the ranges of the best times."""
    if not base:
        return Line(name, "BASE does not have it")
    if not head:
        return Line(name, "HEAD does not have it, or raises an error", red=True)
    said = f"{shown(base)}, then {shown(head)}, best over best {min(head) / min(base):.3f}"
    return Line(name, said, min(head) > ALLOWED * max(base))


def shown(seconds: Sequence[float]) -> str:
    return f"{duration(min(seconds))} to {duration(max(seconds))}"
