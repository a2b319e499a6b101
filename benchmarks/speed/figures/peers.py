"""fastgae beside other libraries: their own code on the same rollouts, in turn within one run, on one CPU.

Every library has its data in the layout and the types that it wants before the clock starts, and every answer is
checked first. The result names libraries that are not installed; the extra ``peers`` brings most of them.
"""

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from timeit import Timer
from typing import Any

import numpy as np

import fastgae
from fastgae._support.project import DISTRIBUTION
from speed.machine import describe_machine
from speed.rows import case
from speed.text import duration, markdown
from speed.timing import best

from .peer_calls import PEERS, Rollout

SHAPES = ((128, 8), (2048, 64), (1024, 1024))
SECONDS = 0.5  # for each peer on each shape; a call that takes longer gives one sample
TOLERANCE = 1e-4  # they round in another order, some in float64


def measure() -> dict[str, Any]:
    """Time everything that runs here on every shape; return types of JSON."""
    machine, missing = describe_machine(), dict[str, str]()
    if hasattr(os, "sched_setaffinity"):  # no library gains from threads on one CPU, where those that it starts stay
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    seconds = {f"{steps}×{envs}": measure_shape(steps, envs, missing) for steps, envs in SHAPES}
    return {"machine": machine, "peers": versions(), "not_run": missing, "seconds": seconds}


def versions() -> dict[str, str]:
    def of(distribution: str) -> str:
        if distribution == DISTRIBUTION:
            return fastgae.__version__
        try:
            return version(distribution)
        except PackageNotFoundError:
            return "not installed"

    return {name: of(distribution) for name, (distribution, _) in PEERS.items()}


def measure_shape(steps: int, envs: int, missing: dict[str, str]) -> dict[str, float]:
    given = case("plain", steps, envs).arguments()
    rollout = Rollout(*(given[name] for name in Rollout._fields))
    expected = fastgae.gae(**given, backend="numpy").advantages
    timers = {}
    for name, (_, prepare) in PEERS.items():
        try:
            ready = prepare(rollout)
        except ImportError as error:
            missing[name] = str(error)
            continue
        difference = float(np.abs(ready.advantages(ready.call()) - expected).max())
        assert difference <= TOLERANCE, f"{name} is off by {difference}"
        timers[name] = Timer(ready.call)
    return best(timers, SECONDS)


def table(measured: Mapping[str, Any]) -> str:
    """Write the times, and in parentheses how many times as long as fastgae's cpp each takes, as Markdown."""
    shapes = measured["seconds"]
    rows = [
        (name, number, *(cell(seconds, name) for seconds in shapes.values()))
        for name, number in measured["peers"].items()
    ]
    missing = [f"Not run: {name}: {why}." for name, why in measured["not_run"].items()]
    return "\n".join([markdown(("", "version", *shapes), rows, left=2), "", *missing])


def cell(seconds: Mapping[str, float], name: str) -> str:
    if name not in seconds:
        return "–"
    ratio = seconds[name] / seconds["fastgae, cpp"]
    return f"{duration(seconds[name])} ({f'{ratio:.2f}' if ratio < 100 else f'{ratio:,.0f}'})"


if __name__ == "__main__":
    print(json.dumps(measure()))
