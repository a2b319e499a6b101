"""How much faster are the hooks of fastgae.compat? Each library's own call, as it is and with the hook in place.

The calls are those of tests/peers/hook_*.py that are of a size met in training. Results are compared first; then
samples of both are taken in turn, so that both meet the same disturbances, and the best sample of each counts.
``OMP_NUM_THREADS=1 python benchmarks/hooks.py`` gives the libraries and fastgae one thread each. Libraries that are not
installed are named and left out.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

from report import describe_machine, duration
from timing import calls_per_sample, sample

PEERS = Path(__file__).parents[1] / "tests" / "peers"
sys.path.insert(0, str(PEERS))
from compare import Comparison, Hooked  # noqa: E402  # it is found there

LIBRARIES = sorted(path.stem.removeprefix("hook_") for path in PEERS.glob("hook_*.py"))
SECONDS = 2.0  # of samples per call


class Measured(NamedTuple):
    library: str
    call: str
    right: bool
    before_seconds: float
    after_seconds: float

    @property
    def times_faster(self) -> float:
        return self.before_seconds / self.after_seconds


def measure(library: str, seconds: float) -> Iterator[Measured]:
    for hooked in importlib.import_module(f"hook_{library}").hooks(np.random.default_rng(0)):
        if hooked.timed:
            before = hooked.before()
            with hooked.install():
                right = Comparison(hooked.name, before, hooked.after(), hooked.tolerance).holds()
            yield Measured(library, hooked.name, right, *in_turn(hooked, seconds))


def in_turn(hooked: Hooked, seconds: float) -> tuple[float, float]:
    """Seconds per call of the best sample of each."""
    before, after = Timer(hooked.before), Timer(hooked.after)
    number = calls_per_sample(before)
    with hooked.install():
        number_after = calls_per_sample(after)
    one, other, start = [], [], time.perf_counter()
    while len(one) < 3 or time.perf_counter() - start < seconds:
        one.append(sample(before, number))
        with hooked.install():
            other.append(sample(after, number_after))
    return min(one), min(other)


def measured_apart() -> dict[str, Any]:
    """In a process of its own, so that every library has one thread. ImportError where one is missing."""
    command = [sys.executable, __file__, "--json"]
    run = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    if missing := found.pop("missing"):
        raise ImportError(f"without {', '.join(missing)} the table would not be whole")
    return found


def table(found: Mapping[str, Any]) -> str:
    """In Markdown, the largest gain first."""
    rows = [
        f"| {row['library']}: {row['call']} | {duration(row['before_seconds'])} | {duration(row['after_seconds'])} | "
        f"{row['times_faster']:.2g} |"
        for row in sorted(found["rows"], key=lambda row: -row["times_faster"])
    ]
    return "\n".join(["| the library's call | before | after | times faster |", "|---|---:|---:|---:|", *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", choices=LIBRARIES, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"samples per call ({SECONDS:g})")
    parser.add_argument("--json", action="store_true", help="JSON on stdout in place of the table")
    args = parser.parse_args(arguments)

    warnings.simplefilter("ignore")  # what a library warns of is not ours to mend
    measured: list[Measured] = []
    absent: list[str] = []
    for library in args.library or LIBRARIES:
        try:
            measured += measure(library, args.seconds)
        except ImportError as missing:
            absent.append(library)
            print(f"{library} is not installed: {missing}", file=sys.stderr)

    machine = describe_machine()
    if args.json:
        lines: list[dict[str, Any]] = [{**each._asdict(), "times_faster": each.times_faster} for each in measured]
        print(json.dumps({"machine": machine, "rows": lines, "missing": absent}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
        print(f"{'before':>10} {'after':>10} {'faster':>8}  call")
        for each in measured:
            wrong = "" if each.right else "  WRONG RESULTS"
            milliseconds = f"{each.before_seconds * 1e3:7.2f} ms {each.after_seconds * 1e3:7.2f} ms"
            print(f"{milliseconds} {each.times_faster:7.1f}×  {each.library}: {each.call}{wrong}")
    return 0 if all(each.right for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
