"""How fast is fastgae.gae, measured in np.add? One command, one table: every kind of rollout on every backend.

The yardstick is ``np.add(a, b, out=c)`` over as many elements of the same dtype as the rollout has steps. It moves 12
bytes per float32 step. GAE with both outputs moves 17: it reads a reward, a value and a flag, and writes an advantage
and a return. Absolute times change from machine to machine, their ratio to np.add much less.

How it is timed: every call is the whole public call, first checked to give the bits of the numpy backend. A sample is
a run of calls of about 2 ms, or one longer call. The backends take turns, each sample right after one of np.add, so
that all meet the same disturbances. A goal is judged by best sample over best sample: on a shared machine disturbances
only ever add time, so the best is what repeats. The median of the ratios of neighbouring samples is shown beside it.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

import fastgae
from fastgae._dispatch import resolve_backend, usable_cpus
from rollouts import Array, make_rollout, outputs_like, same_bits

EXAMPLES = """\
examples:
  python benchmarks/yardstick.py                          everything, two to three minutes
  python benchmarks/yardstick.py --quick                  one row of each kind, half a minute
  python benchmarks/yardstick.py --backend cpp --rows env-major --rows 128x8
  python benchmarks/yardstick.py --backend cpp --rows memory --seconds 10
  python benchmarks/yardstick.py --backend cpp:avx2 --backend cpp:baseline --rows "in cache"
  python benchmarks/yardstick.py --json                   JSON on stdout in place of the table
  python benchmarks/yardstick.py --json yardstick.json    both
"""

SAMPLE_SECONDS = 0.002
SECONDS, QUICK_SECONDS = 1.0, 0.2  # of samples per row and backend, the yardstick's included
NUMPY_SHARE = 0.2  # of those seconds: the reference has no goal

BOTH, ADVANTAGES, FRESH = "both outputs", "advantages only", "fresh outputs"

# --- what is measured -------------------------------------------------------------------------------------------------


class Goal(NamedTuple):
    """At most ``limit`` times what ``over`` takes: np.add, or another contender of the row."""

    limit: float
    over: str

    def __str__(self) -> str:
        return f"{self.limit:g} × {self.over}"


@dataclass(frozen=True)
class Row:
    """One rollout to time. Sizes are T×N in either layout."""

    group: str
    steps: int
    envs: int
    goal: float | None = None  # of cpp, in np.add
    numba_goal: float | None = None  # of numba, in cpp
    detail: str = ""
    env_major: bool = False
    outputs: str = BOTH
    bootstrap: str = "last_values"
    dtype: str = "float32"
    ends: float = 0.01
    two_threads: bool = False
    quick: bool = True

    @property
    def label(self) -> str:
        return f"{self.steps}×{self.envs} {self.detail}".strip()

    @property
    def name(self) -> str:
        return f"{self.group}: {self.label}"

    def matches(self, text: str) -> bool:
        return text.replace("×", "x").lower() in self.name.replace("×", "x").lower()


def rows() -> list[Row]:
    memory, cache = [(1024, 16384), (16, 1048576), (128, 65536), (16384, 1024)], [(128, 1024), (2048, 64)]
    first = memory[0]
    env_major: dict[str, Any] = {"env_major": True, "outputs": ADVANTAGES}
    return [
        *(
            Row(
                "time-major, from memory",
                *size,
                goal=1.15 if size == first else 1.25,
                numba_goal=2,
                quick=size == first,
            )
            for size in memory
        ),
        *(Row("time-major, in cache", *size, goal=1.5, numba_goal=2) for size in cache),
        *(
            Row("env-major, in cache, advantages only", *size, goal=2, numba_goal=2, **env_major)
            for size in [*cache, (1024, 128), (64, 2048)]
        ),
        *(
            Row(
                "env-major, from memory, advantages only",
                *size,
                goal=1.5,
                numba_goal=2,
                quick=size == first,
                **env_major,
            )
            for size in memory
        ),
        *(
            Row("one trajectory, no episode ends", steps, 1, goal=2.5, ends=0, quick=steps < 100_000)
            for steps in (65536, 1048576)
        ),
        Row("small call", 128, 8, goal=5, detail="fresh outputs", outputs=FRESH),
        Row("small call", 128, 8, goal=5, detail="out="),
        *(
            Row("other input", *size, detail=detail, quick=size != first, **options)
            for size in (cache[0], first)
            for detail, options in (
                ("next_values, two flags", {"bootstrap": "next_values"}),
                ("final_values, two flags", {"bootstrap": "final_values"}),
                ("float64", {"dtype": "float64"}),
                ("env-major, both outputs", {"env_major": True}),
            )
        ),
        Row("few long trajectories", 65536, 4),
        Row("env-major, T no power of two, advantages only", 2000, 64, **env_major),
        Row("env-major, T no power of two, advantages only", 1000, 16384, quick=False, **env_major),
        *(
            Row("two threads", *first, detail=detail, two_threads=True, quick=False, env_major=detail == "env-major")
            for detail in ("time-major", "env-major")
        ),
    ]


@dataclass
class Contender:
    """A backend on a row: what it is asked for, what it should reach, and what it did."""

    name: str
    backend: str
    num_threads: int
    goal: Goal | None
    right: bool = False
    # (np.add, this), seconds per call; neighbours in time.
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(seconds for _, seconds in self.samples)

    @property
    def median(self) -> float:
        return statistics.median(seconds for _, seconds in self.samples)

    @property
    def median_ratio(self) -> float:
        return statistics.median(seconds / add for add, seconds in self.samples)


def contenders(row: Row, backends: Sequence[str], num_threads: int) -> list[Contender]:
    if row.two_threads:
        # One thread of the same backend is what two are measured against; the reference has no threads.
        threaded = [name for name in backends if name != "numpy"]
        return [
            contender
            for name in threaded
            for contender in (
                Contender(f"{name}, 1 thread", name, 1, None),
                Contender(f"{name}, 2 threads", name, 2, Goal(1 / 1.6, f"{name}, 1 thread")),
            )
        ]
    return [Contender(name, name, num_threads, goal_of(row, name, backends, num_threads)) for name in backends]


def goal_of(row: Row, name: str, backends: Sequence[str], num_threads: int) -> Goal | None:
    if num_threads == 1 and row.goal and name.partition(":")[0] == "cpp":
        return Goal(row.goal, "np.add")
    if num_threads == 1 and row.numba_goal and name == "numba" and "cpp" in backends:
        return Goal(row.numba_goal, "cpp")
    return None


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """A row with the times of np.add and of everything that computed it."""

    row: Row
    add_bytes: int
    gae_bytes: int
    contenders: list[Contender]

    @property
    def add_samples(self) -> list[float]:
        return [add for contender in self.contenders for add, _ in contender.samples]

    def ratio(self, contender: Contender) -> float:
        """To np.add, best over best."""
        return contender.best / min(self.add_samples)

    def judged(self, contender: Contender) -> float | None:
        """The same ratio to what its goal speaks of; None without a goal, or where that has no right answer."""
        if contender.goal is None or not contender.right:
            return None
        if contender.goal.over == "np.add":
            return self.ratio(contender)
        over = next(other for other in self.contenders if other.name == contender.goal.over)
        return contender.best / over.best if over.right else None

    def met(self, contender: Contender) -> bool | None:
        judged = self.judged(contender)
        return None if judged is None or contender.goal is None else judged <= contender.goal.limit

    def verdict(self, contender: Contender) -> str:
        if not contender.right:
            return "WRONG"
        met = self.met(contender)
        return "" if met is None else "met" if met else f"NOT met: {self.judged(contender):.2f}"


def measure_row(row: Row, entrants: list[Contender], seconds: float) -> Measured:
    arguments = make_rollout(
        row.steps, row.envs, env_major=row.env_major, dtype=row.dtype, bootstrap=row.bootstrap, ends=row.ends
    )
    rewards = arguments["rewards"]
    advantages, returns = outputs_like(rewards)
    out = None if row.outputs == FRESH else (advantages, None if row.outputs == ADVANTAGES else returns)
    check(entrants, arguments, out)

    # Arrays of its own, so that neither finds in the cache what the other has left there.
    a, b, c = (rewards.copy() for _ in range(3))
    names = {"gae": fastgae.gae, "add": np.add, "a": a, "b": b, "c": c, "out": out, **arguments}
    keywords = [name for name in arguments if name not in ("rewards", "values", "terminated")]
    passed = "".join(f", {name}={name}" for name in ([*keywords, "out"] if out else keywords))

    def call(entrant: Contender) -> Timer:
        settings = f"num_threads={entrant.num_threads}, backend={entrant.backend!r}"
        return Timer(f"gae(rewards, values, terminated{passed}, {settings})", globals=names)

    add = Timer("add(a, b, out=c)", globals=names)
    take_turns(add, [(entrant, call(entrant)) for entrant in entrants if entrant.right], seconds)
    read = sum(array.nbytes for array in arguments.values() if isinstance(array, np.ndarray))
    written = rewards.nbytes * (1 if row.outputs == ADVANTAGES else 2)
    return Measured(row, 3 * rewards.nbytes, read + written, entrants)


def check(entrants: list[Contender], arguments: Mapping[str, Any], out: tuple[Array, Array | None] | None) -> None:
    """Whether each gives the bits of the numpy backend; this is also where Numba compiles."""
    expected = fastgae.gae(**arguments, backend="numpy", num_threads=1)
    for entrant in entrants:
        if entrant.backend == "numpy":
            entrant.right = True  # and too slow on long rollouts to compute them once more
            continue
        for array in out or ():
            if array is not None:
                array.fill(np.nan)
        result = fastgae.gae(**arguments, out=out, num_threads=entrant.num_threads, backend=entrant.backend)
        entrant.right = same_bits(result, expected)


def take_turns(add: Timer, calls: list[tuple[Contender, Timer]], seconds: float) -> None:
    """Samples of each in turn until each has used its time; one that takes longer than that gives one sample."""
    add_number, numbers = calls_per_sample(add), [calls_per_sample(call) for _, call in calls]
    left = [seconds * (NUMPY_SHARE if entrant.backend == "numpy" else 1) for entrant, _ in calls]
    while any(time_left > 0 for time_left in left):
        for i, (entrant, call) in enumerate(calls):
            if left[i] > 0:
                start = time.perf_counter()
                entrant.samples.append((sample(add, add_number), sample(call, numbers[i])))
                left[i] -= time.perf_counter() - start


def calls_per_sample(call: Timer) -> int:
    seconds = call.timeit(1)
    if seconds < SAMPLE_SECONDS:
        seconds = min(call.repeat(5, 1))
    return 1 + int(SAMPLE_SECONDS / seconds)


def sample(call: Timer, number: int) -> float:
    if number > 1:
        call.timeit(1)  # what fits into the cache should be there
    return call.timeit(number) / number


# --- showing ----------------------------------------------------------------------------------------------------------

HEADINGS = ("T×N", "backend", "best", "median", "steps/s", "GB/s", "× np.add", "median", "goal", "reached")
WORDS = ("T×N", "backend", "goal", "reached")  # to the left; numbers to the right


class Line(NamedTuple):
    cells: tuple[str, ...]
    style: str


def sections(measured: Sequence[Measured]) -> dict[str, list[Line]]:
    """The lines of the table by group."""
    grouped: dict[str, list[Line]] = {}
    for entry in measured:
        lines = grouped.setdefault(entry.row.group, [])
        if entry.add_samples:
            best, median = min(entry.add_samples), statistics.median(entry.add_samples)
            speeds = speed_cells(entry, best, median, entry.add_bytes)
            lines.append(Line((entry.row.label, "np.add", *speeds, "", "", "", ""), "dim"))
        for contender in entry.contenders:
            verdict, goal = entry.verdict(contender), str(contender.goal or "")
            if not contender.right:
                lines.append(Line((entry.row.label, contender.name, *[""] * 6, goal, verdict), "bold red"))
                continue
            speeds = speed_cells(entry, contender.best, contender.median, entry.gae_bytes)
            ratios = rounded(entry.ratio(contender)), rounded(contender.median_ratio)
            style = "green" if verdict == "met" else "red" if verdict else ""
            lines.append(Line((entry.row.label, contender.name, *speeds, *ratios, goal, verdict), style))
    return grouped


def speed_cells(entry: Measured, best: float, median: float, size: int) -> tuple[str, str, str, str]:
    rate = entry.row.steps * entry.row.envs / best
    scale, prefix = (1e9, "G") if rate >= 1e8 else (1e6, "M")
    return duration(best), duration(median), f"{rate / scale:.2f} {prefix}", f"{size / best / 1e9:.1f}"


def duration(seconds: float) -> str:
    scale, unit = (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{seconds * scale:,.2f} {unit}"


def rounded(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def summary(measured: Sequence[Measured]) -> list[str]:
    """How many goals each backend met, and which it did not."""
    judged: dict[str, list[tuple[bool, str]]] = {}
    for entry in measured:
        for contender in entry.contenders:
            met = entry.met(contender)
            if met is not None:
                judged.setdefault(contender.backend, []).append((met, entry.row.name))
    lines = []
    for backend, verdicts in judged.items():
        lines.append(f"{backend}: {sum(met for met, _ in verdicts)} of {len(verdicts)} goals met")
        lines += [f"  not met: {where}" for met, where in verdicts if not met]
    wrong = [
        f"WRONG: {contender.name} differs from numpy on {entry.row.name}"
        for entry in measured
        for contender in entry.contenders
        if not contender.right
    ]
    return [*lines, *(wrong or ["Every answer has the bits of the numpy backend."])]


def show(measured: Sequence[Measured], machine: Mapping[str, Any]) -> None:
    """Coloured where stdout is a terminal and rich is installed."""
    lines = [
        Line((", ".join(f"{name} {value}" for name, value in machine.items()),), ""),
        Line(("steps/s, GB/s and × np.add are of the best sample, and by it goals are judged",), ""),
        *table(sections(measured)),
        Line(("",), ""),
        *(Line((text,), "") for text in summary(measured)),
    ]
    try:
        if not sys.stdout.isatty():
            raise ImportError("colours are for people")
        from rich.console import Console
    except ImportError:
        for line in lines:
            print(*line.cells)
        return
    console = Console(highlight=False)
    for line in lines:
        console.print(*line.cells, style=line.style, markup=False, soft_wrap=True)


def table(grouped: Mapping[str, Sequence[Line]]) -> Iterator[Line]:
    """The lines with their cells joined to one."""
    cells_of_all = [HEADINGS, *(line.cells for lines in grouped.values() for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells_of_all, strict=True)]

    def joined(cells: Sequence[str]) -> tuple[str]:
        padded = (
            cell.ljust(width) if heading in WORDS else cell.rjust(width)
            for heading, cell, width in zip(HEADINGS, cells, widths, strict=True)
        )
        return ("  ".join(padded).rstrip(),)

    yield Line(joined(HEADINGS), "bold")
    for group, lines in grouped.items():
        yield Line((f"\n{group}",), "bold")
        previous = ""
        for (label, *others), style in lines:
            yield Line(joined(("" if label == previous else label, *others)), style)
            previous = label


def as_json(measured: Sequence[Measured], machine: Mapping[str, Any]) -> str:
    def speeds(entry: Measured, samples: Sequence[float], size: int) -> dict[str, float]:
        best = min(samples)
        return {
            "best_seconds": best,
            "median_seconds": statistics.median(samples),
            "samples": len(samples),
            "steps_per_second": entry.row.steps * entry.row.envs / best,
            "bytes_per_second": size / best,
        }

    def result(entry: Measured, contender: Contender) -> dict[str, Any]:
        named = {"name": contender.name, "backend": contender.backend, "num_threads": contender.num_threads}
        if not contender.right:
            return {**named, "right": False}
        return {
            **named,
            "right": True,
            **speeds(entry, [seconds for _, seconds in contender.samples], entry.gae_bytes),
            "ratio_to_add_best": entry.ratio(contender),
            "ratio_to_add_median": contender.median_ratio,
            "goal": contender.goal and contender.goal._asdict(),
            "ratio_judged": entry.judged(contender),
            "met": entry.met(contender),
        }

    document = {
        "machine": machine,
        "judged_by": "best sample over best sample",
        "rows": [
            {
                **asdict(entry.row),
                "add": speeds(entry, entry.add_samples, entry.add_bytes) if entry.add_samples else None,
                "results": [result(entry, contender) for contender in entry.contenders],
            }
            for entry in measured
        ],
    }
    return json.dumps(document, indent=2)


def describe_machine() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "fastgae": fastgae.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "CPU": cpu_model(),
        "usable CPUs": usable_cpus(),
    }
    if hasattr(os, "getloadavg"):
        # Above 0 before anything has run here, others use the CPUs and the memory bus too.
        facts["load"] = round(os.getloadavg()[0], 1)
    for backend in fastgae.backends():
        if backend.available:
            facts[backend.name] = " ".join(filter(None, [backend.version, *backend.targets[:1]]))
        else:
            facts[backend.name] = "missing: " + (backend.why_missing or "").partition("\n")[0]
    return facts


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def track(todo: Sequence[Row]) -> Iterator[Row]:
    """The rows, with progress on stderr: a bar for people, a line per row elsewhere and without rich."""
    try:
        if not sys.stderr.isatty():
            raise ImportError("a bar is for people")
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        for number, row in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}] {row.name}", file=sys.stderr, flush=True)
            yield row
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(todo))
        for row in todo:
            progress.update(task, description=row.name)
            yield row
            progress.advance(task)


# --- the command ------------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", action="append", metavar="NAME", help="only this one, such as cpp or cpp:avx2; may be repeated")
    add("--rows", action="append", metavar="TEXT", help="only rows whose name contains this; may be repeated")
    add("--threads", type=int, default=1, metavar="N", help="num_threads of every call; the goals are for 1 (default)")
    add("--quick", action="store_true", help="one row of each kind, less often")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help="samples per row and backend (1, or 0.2 if --quick): more, less noise",
    )
    add("--json", nargs="?", const="-", metavar="FILE", help="JSON to a file, or to stdout in place of the table")
    args = parser.parse_args(arguments)
    if args.threads < 1:
        parser.error(f"argument --threads: expected a positive integer, got {args.threads}")
    if args.seconds is None:
        args.seconds = QUICK_SECONDS if args.quick else SECONDS
    if not 0 < args.seconds < float("inf"):
        parser.error(f"argument --seconds: expected a positive number, got {args.seconds}")
    if args.json not in (None, "-") and not Path(args.json).parent.is_dir():
        parser.error(f"argument --json: there is no directory {str(Path(args.json).parent)!r}")
    runs_here = [backend.name for backend in fastgae.backends() if backend.available]
    args.backend = list(dict.fromkeys(args.backend or runs_here))
    for name in args.backend:
        try:
            resolve_backend(name)
        except (ValueError, fastgae.BackendUnavailableError) as error:
            parser.error(f"argument --backend: {error}")

    known = [row for row in rows() if not (row.two_threads and usable_cpus() < 2)]
    wanted = [row for row in known if not args.rows or any(row.matches(text) for text in args.rows)]
    if args.quick:
        wanted = [row for row in wanted if row.quick]
    args.rows = [row for row in wanted if contenders(row, args.backend, args.threads)]
    if not args.rows:
        parser.error("no such row; there are\n  " + "\n  ".join(row.name for row in known))
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    machine = describe_machine()
    measured = [measure_row(row, contenders(row, args.backend, args.threads), args.seconds) for row in track(args.rows)]
    if args.json == "-":
        print(as_json(measured, machine))
    else:
        show(measured, machine)
        if args.json:
            Path(args.json).write_text(as_json(measured, machine) + "\n")
    return 0 if all(contender.right for entry in measured for contender in entry.contenders) else 1


if __name__ == "__main__":
    sys.exit(main())
