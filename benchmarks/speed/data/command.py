"""Recorded data: speed, CPU time and peak memory from Parquet to Parquet, of fastgae and of what else there is.

  python benchmarks data                                a million steps, in a minute or two
  python benchmarks data --steps 100000000 ours pyarrow 10^8 steps: 1.5 GB of files, and half a minute
  python benchmarks data --json > data.json

Every contender runs in a process of its own, on one CPU. It computes a small file first, whose results are checked, and
then the large one. Slow contenders get fewer steps. Where a library is missing, its contender is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from speed.machine import describe_machine
from speed.memory import resident
from speed.places import BENCHMARKS, clean
from speed.text import markdown

from .contenders import CONTENDERS
from .episodes import right, write_episodes, write_scattered

MOST_STEPS_OF_THE_SLOW = 1_000_000
MEAN_LENGTH, SHORT_LENGTH = 200, 10
SMALL = 5000
MISSING = 3  # the exit status of a contender whose library is missing


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.child:
        print(json.dumps(measured_here(*args.contenders, args.folder, args.memory)))
        return 0
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        every = [measured(name, args, Path(folder)) for _ in range(args.rounds) for name in args.contenders]
    rows = [best(found) for name in args.contenders if (found := [row for row in every if row and row["name"] == name])]
    document = {"machine": describe_machine(), "memory": args.memory, "rows": rows}
    print(json.dumps(document, indent=1) if args.json else table(rows))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("contenders", nargs="*", metavar="CONTENDER", help=f"of {', '.join(CONTENDERS)}; none: all")
    add("--steps", type=int, default=1_000_000, help="of episodes of 200 steps on average (default: %(default)s)")
    add("--episodes", type=int, default=100_000, help="of 10 steps on average, for Ray (default: %(default)s)")
    add("--memory", default="256MB", help="the limit that fastgae gets (default: %(default)s)")
    add("--folder", type=Path, help="where to make a folder of files (default: that of the system)")
    add("--rounds", type=int, default=2, help="the best time and the highest peak count (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object in place of the table")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if unknown := set(args.contenders) - set(CONTENDERS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}")
    if min(args.steps, args.episodes, args.rounds) < 1:
        parser.error("--steps, --episodes and --rounds must be at least 1")
    args.contenders = args.contenders or list(CONTENDERS)
    return args


def measured(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any] | None:
    """Return what a process of its own measures; None if its library is missing."""
    contender = CONTENDERS[name]
    print(contender.label, file=sys.stderr, flush=True)
    steps = min(args.steps, MOST_STEPS_OF_THE_SLOW) if contender.slow else args.steps
    steps, length = (args.episodes * SHORT_LENGTH, SHORT_LENGTH) if contender.short else (steps, MEAN_LENGTH)
    for file, count in (("small.parquet", SMALL), (f"{steps}-{length}.parquet", steps)):
        if not (folder / file).exists():
            write_episodes(folder / file, count, length)
        if contender.scattered and not (folder / f"scattered-{file}").exists():
            write_scattered(folder / f"scattered-{file}", folder / file)
    file = f"scattered-{file}" if contender.scattered else file
    command = [sys.executable, str(BENCHMARKS), "data", name, "--child"]
    command += ["--folder", str(folder / file), "--memory", args.memory]
    done = subprocess.run(command, env=clean(), stdout=subprocess.PIPE, text=True)
    if done.returncode == MISSING:
        return None
    done.check_returncode()
    return {"name": name, "label": contender.label, "steps": steps, **json.loads(done.stdout.splitlines()[-1])}


def best(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds, cpu, peaks = ([row[name] for row in rows] for name in ("seconds", "cpu", "peak"))
    return {**rows[0], "seconds": min(seconds), "cpu": cpu[0] and min(cpu), "peak": peaks[0] and max(peaks)}


def measured_here(name: str, source: Path, memory: str) -> Mapping[str, Any]:
    """Return the seconds, the CPU's too, and the highest memory of one contender in this process, on one CPU."""
    contender = CONTENDERS[name]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    out = source.with_name(f"{name}.parquet")
    try:
        small = source.with_name("scattered-small.parquet" if contender.scattered else "small.parquet")
        contender.run(small, out, memory)
    except ModuleNotFoundError as error:
        print(f"{contender.label} is left out: {error}", file=sys.stderr)
        raise SystemExit(MISSING) from error
    if contender.computes:
        assert right(small, pq.read_table(out))
    out.unlink()
    began, before = time.perf_counter(), time.process_time()
    part = contender.run(source, out, memory)
    seconds, cpu = time.perf_counter() - began, time.process_time() - before
    out.unlink()
    if part is not None:
        return {"seconds": part, "cpu": None, "peak": resident("VmHWM") if contender.one_process else None}
    return {"seconds": seconds, "cpu": cpu, "peak": resident("VmHWM")}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        steps, seconds = row["steps"], row["seconds"]
        peak = "" if row["peak"] is None else f"{row['peak'] / 1e6:,.0f} MB"
        cpu = "" if row["cpu"] is None else f"{row['cpu']:,.2f}"
        lines.append((row["label"], f"{steps:,}", f"{seconds:,.2f}", cpu, f"{steps / seconds / 1e6:,.2f}", peak))
    return markdown(("", "steps", "seconds", "CPU seconds", "million steps/s", "peak memory"), lines)
