"""fastgae beside other libraries: their own code on the same rollouts, in turn within one run, on one CPU.

Every library has its data in the layout and the types that it wants before the clock starts, and every answer is
checked first. The result names libraries that are not installed; the extra ``peers`` brings most of them.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from timeit import Timer
from typing import Any

import numpy as np

import fastgae
from speed.machine import describe_machine
from speed.rollouts import make_rollout
from speed.shown import duration, rounded
from speed.timing import Clock, in_turn, np_add

from .peer_calls import PEERS, Ready, Rollout

SHAPES = ((128, 8), (2048, 64), (1024, 1024))
SECONDS = 0.5  # for each peer on each shape; a call that takes longer gives one sample
TOLERANCE = 1e-4  # they round in another order, some in float64


def measure() -> dict[str, Any]:
    """Time everything that runs here on every shape; return types of JSON."""
    with one_cpu():
        rows = [measure_shape(*shape) for shape in SHAPES]
    return {"machine": describe_machine(), "peers": versions(), "rows": rows}


@contextmanager
def one_cpu() -> Iterator[None]:
    """Bind the process to one CPU, so that no library gains from threads, however it starts them."""
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


def measure_shape(steps: int, envs: int) -> dict[str, Any]:
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
    samples = in_turn([[Clock(timer)] for timer in timers.values()], [SECONDS] * len(timers))
    for name, found in zip(timers, samples, strict=True):
        results.setdefault(name, {}).update(best_seconds=min(seconds for (seconds,) in found), samples=len(found))
    return {"steps": steps, "envs": envs, "results": results}


def checked(name: str, ready: Ready, expected: Any) -> float:
    difference = float(np.abs(ready.advantages(ready.call()) - expected).max())
    assert difference <= TOLERANCE, f"{name} is off by {difference}"
    return difference


def table(measured: Mapping[str, Any]) -> str:
    """Write the times, and in parentheses how many times as long as fastgae's cpp each takes, as Markdown."""
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
