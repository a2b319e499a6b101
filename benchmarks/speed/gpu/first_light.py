"""What a GPU that nobody has tried yet can tell, in three commands of ten minutes; and a page of what they told.

  python benchmarks first-light tests FILE      build, and run the tests of tests/gpu on this GPU
  python benchmarks first-light times FILE      python benchmarks gpu: every contender beside an H200
  python benchmarks first-light oddities FILE   threads, graphs, NaN, large arrays, JAX's programs; compute-sanitizer
  python benchmarks first-light page FILE       print FILE as a page in Markdown

The first three append lines of JSON to FILE, each as soon as something is known, and stop in time; all that the
commands print is in FILE.log. They need torch, Triton and pytest. A compiled module of the right Python in ``fastgae/``
need not be built there; pybind11 builds it. Without both, NumPy computes what results are compared with, and
trajectories that would take it long are only timed. With --dry, Triton's interpreter tries all of it without a GPU.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..text import markdown
from .oddities import ODDITIES, ON_A_GPU, SANITIZED

ROOT = Path(__file__).parents[3]
SECONDS = 570.0
LONGEST = 120.0  # seconds of one oddity
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"
DRY_TESTS = "tests/gpu/test_benchmark.py::test_packed_answers"

Found = dict[str, Any]


class Commands:
    """Commands that together end in time, and the file that gets what they print."""

    def __init__(self, seconds: float, log: Path):
        self.end, self.log = time.monotonic() + seconds, log

    def run(self, *command: object, longest: float = SECONDS) -> tuple[int | None, str]:
        """Return the status of a command, None if it took too long, and what it printed."""
        paths = os.pathsep.join(
            [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        )
        process = subprocess.Popen(
            [str(each) for each in command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=max(1.0, min(longest, self.end - time.monotonic())))
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also what the command has started
            status, (printed, _) = None, process.communicate()
        with self.log.open("a", encoding="utf-8") as file:
            print("$", *command, printed, sep="\n", file=file)
        return status, printed


def tests(commands: Commands, args: argparse.Namespace) -> Iterator[Found]:
    """Build the compiled module where that is possible, and run the tests of tests/gpu that need a GPU."""
    built = importlib.util.find_spec("fastgae._core")
    if not (built or args.dry) and importlib.util.find_spec("pybind11"):
        yield told("build", *commands.run(sys.executable, "setup.py", "build_ext", "--inplace", longest=240.0))
    workers = ["-n", "auto"] if importlib.util.find_spec("xdist") and not args.dry else ["-p", "no:cacheprovider"]
    # The warnings of other libraries are not what the tests are about.
    # Each test is a line, because the time may be over before pytest sums up.
    how = ["-v", "--maxfail=50", "-o", "filterwarnings=default", "--ignore=tests/gpu/test_compiled.py", *workers]
    status, printed = commands.run(sys.executable, "-m", "pytest", *how, DRY_TESTS if args.dry else "tests/gpu")
    for test in dict.fromkeys(
        re.findall(r"(?:FAILED|ERROR) (tests/gpu/\S.*?)(?: - .*)? *$|(tests/gpu/\S.*?) (?:FAILED|ERROR)", printed, re.M)
    ):
        yield told("".join(test), 1, "")
    yield told("tests", status, printed)


def times(commands: Commands, args: argparse.Namespace) -> Iterator[Found]:
    """Measure every contender; they write their rows themselves."""
    how = ["--rows", args.file.resolve(), "--seconds", commands.end - time.monotonic() - 10.0]
    some = ["--dry", "add", "pufferlib"] if args.dry else []
    status, printed = commands.run(sys.executable, "benchmarks", "gpu", "--untested", *how, *some)
    print(printed)
    yield told("times", status, printed)


def oddities(commands: Commands, args: argparse.Namespace) -> Iterator[Found]:
    """Try what is unusual; first what takes least."""
    dry = ["--dry"] if args.dry else []
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(SANITIZER)
    for name in ODDITIES:
        program = sys.executable, "-m", "speed.gpu.oddities", name, *dry
        if name not in ON_A_GPU or not args.dry:
            yield told(name, *commands.run(*program, longest=LONGEST))
    for name in SANITIZED:
        program = sys.executable, "-m", "speed.gpu.oddities", name, *dry
        for tool in ("memcheck", "racecheck"):
            check = f"{name}, {tool}"
            if sanitizer is None or args.dry:
                yield {"check": check, "passed": None, "said": "compute-sanitizer is not here"}
            else:
                how = ["--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
                yield told(check, *commands.run(sanitizer, *how, *program, longest=LONGEST))


def told(check: str, status: int | None, printed: str) -> Found:
    """Return what is written of a check: whether it passed, and the last line that it printed."""
    lines = [line for line in printed.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    return {"check": check, "passed": status == 0, "said": said if status is not None else f"too slow; {said}"}


def page(file: Path) -> str:
    """Return in Markdown what a file tells: the checks, and a table of rows with a column for each contender."""
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    checks = [each for each in found if "check" in each]
    rows = [each for each in found if "row" in each]
    words = {True: "passed", False: "**failed**", None: "not tried"}
    tried = [[each["check"], words[each["passed"]], each["said"].replace("|", "\\|")] for each in checks]
    contenders = list(dict.fromkeys(each["contender"] for each in rows))
    last = {(each["row"], each["contender"]): each for each in rows}  # of a row that was measured again

    def cell(row: str, contender: str) -> str:
        measured = last.get((row, contender), {})
        both = [f"{1e6 * measured[what]:,.1f}" for what in ("device_time", "call") if what in measured]
        return measured.get("failed", " / ".join(both)).replace("|", "\\|")

    known = {each["row"]: each.get("h200", "") for each in rows if each["row"]}
    table = [[row, known[row], *(cell(row, contender) for contender in contenders)] for row in known]
    lost = [[contender, cell("", contender)] for contender in contenders if ("", contender) in last]
    where = sorted({f"{each['device']}, torch {each['torch']}" for each in rows if "device" in each})
    parts = [
        f"# {'; '.join(where) or 'no device'}",
        markdown(["check", "", "last line"], tried, left=3),
        "Microseconds of the device / of a whole call:",
        markdown(["rollout", "H200", *contenders], table),
        *([markdown(["process", "ended"], lost, left=2)] if lost else []),
    ]
    return "\n\n".join(parts)


COMMANDS: dict[str, Callable[[Commands, argparse.Namespace], Iterator[Found]]] = {
    each.__name__: each for each in (tests, times, oddities)
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*COMMANDS, "page"])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--dry", action="store_true", help="by Triton's interpreter")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="stop after this time (default: %(default)s)")
    args = parser.parse_args(arguments)
    if args.command == "page":
        print(page(args.file))
        return 0
    if args.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    wrong = 0
    for found in COMMANDS[args.command](Commands(args.seconds, Path(f"{args.file}.log")), args):
        print(found, flush=True)
        wrong += found["passed"] is False
        with args.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    return int(bool(wrong))
