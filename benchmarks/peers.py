"""fastgae beside other libraries: their own code on the same rollouts, in turns within one run, on one CPU.

Each has its data in the layout and the types that it wants before the clock starts, and every answer is checked first.
What is not installed is named with the reason; the extra ``peers`` brings most of it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from timeit import Timer
from typing import Any

import numpy as np

import fastgae
from peer_calls import PEERS, Ready, Rollout
from report import describe_machine, duration, rounded
from rollouts import make_rollout
from timing import calls_per_sample, np_add, sample

SHAPES = ((128, 8), (2048, 64), (1024, 1024))
SECONDS = 0.5  # of each peer on each shape, or one sample where that takes longer
TOLERANCE = 1e-4  # they round in another order, some in float64


def measure(seconds: float = SECONDS) -> dict[str, Any]:
    """Everything that runs here on every shape; JSON's types."""
    with one_cpu():
        rows = [measure_shape(*shape, seconds) for shape in SHAPES]
    return {"machine": describe_machine(), "peers": versions(), "rows": rows}


@contextmanager
def one_cpu() -> Iterator[None]:
    """So that nobody's threads help, whichever way they would be asked not to."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


def versions() -> dict[str, str]:
    def of(distribution: str) -> str:
        if distribution == "fastgae-rl":
            return fastgae.__version__
        try:
            return version(distribution)
        except PackageNotFoundError:
            return "not installed"

    return {name: of(distribution) for name, (distribution, _) in PEERS.items()}


def measure_shape(steps: int, envs: int, seconds: float) -> dict[str, Any]:
    given = make_rollout(steps, envs)
    rollout = Rollout(*(given[name] for name in Rollout._fields))
    expected = fastgae.gae(**given, backend="numpy").advantages
    results: dict[str, dict[str, Any]] = {}
    timers: dict[str, Timer] = {"np.add": np_add(rollout.rewards)}
    for name, (_, prepare) in PEERS.items():
        try:
            ready = prepare(rollout)
        except ImportError as error:
            results[name] = {"missing": str(error)}
            continue
        results[name] = {"largest_difference": checked(name, ready, expected)}
        timers[name] = Timer(ready.call)
    for name, samples in in_turns(timers, seconds).items():
        results.setdefault(name, {}).update(best_seconds=min(samples), samples=len(samples))
    return {"steps": steps, "envs": envs, "results": results}


def checked(name: str, ready: Ready, expected: Any) -> float:
    difference = float(np.abs(ready.advantages(ready.call()) - expected).max())
    assert difference <= TOLERANCE, f"{name} is off by {difference}"
    return difference


def in_turns(timers: Mapping[str, Timer], seconds: float) -> dict[str, list[float]]:
    """Samples of each in turn until each has used its time."""
    numbers = {name: calls_per_sample(timer) for name, timer in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    used = dict.fromkeys(timers, 0.0)
    while any(time_used < seconds for time_used in used.values()):
        for name, timer in timers.items():
            if used[name] < seconds:
                start = time.perf_counter()
                samples[name].append(sample(timer, numbers[name]))
                used[name] += time.perf_counter() - start
    return samples


def table(measured: Mapping[str, Any]) -> str:
    """Times, and how many times as long as fastgae's cpp; in Markdown, which reads as text too."""
    rows = measured["rows"]
    heads = [f"{row['steps']}×{row['envs']}" for row in rows]
    lines = [f"| | version | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(rows)}"]
    for name, number in measured["peers"].items():
        cells = [cell(row["results"], name) for row in rows]
        lines.append(f"| {name} | {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(results: Mapping[str, Any], name: str) -> str:
    if "missing" in results[name]:
        return "–"
    seconds, ours = (results[each]["best_seconds"] for each in (name, "fastgae, cpp"))
    return f"{duration(seconds)} ({rounded(seconds / ours)})"


def missing(measured: Mapping[str, Any]) -> list[str]:
    first = measured["rows"][0]["results"]
    return [f"{name}: {first[name]['missing']}" for name in measured["peers"] if "missing" in first[name]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="samples of each peer on each shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers too")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw them too, as SVG (needs matplotlib)")
    args = parser.parse_args(arguments)
    measured = measure(args.seconds)
    print(table(measured), *missing(measured), sep="\n")
    if args.json:
        args.json.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    if args.chart:
        from charts import peers_chart

        args.chart.write_bytes(peers_chart(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
