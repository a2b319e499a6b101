"""``fastgae info``: show which backends run here, which one is the default, and why the others are missing."""

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import fastgae
from fastgae._engine import dispatch
from fastgae._support import memory, threads

HELP = "versions, backends, CPU targets, threads and environment variables"

DESCRIPTION = """\
Show which backends run here, which one is the default, and why others are missing.

The exit status is 0. It is 1 if a setting cannot be used, or if no compiled
backend runs and NumPy takes its place.
"""

EXAMPLES = """\
examples:
  fastgae info                          for people
  fastgae info --json                   for programs
  FASTGAE_BACKEND=numpy fastgae info    with a setting, to see what it changes
"""

LARGE_CALLS = 8  # after which the compiled kernels have timed every way to prefetch


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    facts = gather()
    print(json.dumps(facts, indent=2) if args.json else text(facts))
    return 1 if facts["problems"] else 0


def gather() -> dict[str, Any]:
    """Return everything that `info` prints. A setting that cannot be used goes into ``problems`` and raises nothing."""
    problems = [*filter(None, [dispatch.fallback()])]

    def attempt(resolve: Callable[[], Any]) -> Any:
        try:
            return resolve()
        except (ValueError, fastgae.BackendUnavailableError) as error:
            if str(error) not in problems:
                problems.append(str(error))
            return None

    return {
        "fastgae": fastgae.__version__,
        "location": str(Path(fastgae.__file__).parent),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "numba": _installed("numba"),
        "default_backend": attempt(partial(resolved, None)),
        "num_threads": attempt(lambda: dispatch.resolve_threads(None) or threads.usable_cpus()),
        "recycled": attempt(_recycled),
        "prefetching": attempt(_prefetching) or [],
        "backends": [
            {**backend._asdict(), "target": attempt(partial(_chosen_target, backend.name)) if backend.targets else None}
            for backend in fastgae.backends()
        ],
        "environment": {
            name: {"value": dispatch.SETTINGS[name], "meaning": meaning}
            for name, meaning in dispatch.ENVIRONMENT.items()
        },
        "problems": problems,
    }


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def resolved(backend: str | None) -> dict[str, str | None]:
    module, target = dispatch.resolve_backend(backend)
    return {"name": module.__name__.rpartition(".")[2], "target": target or next(iter(module.targets()), None)}


def _recycled() -> dict[str, int]:
    dispatch.recycle()
    return memory.recycled()


def _prefetching() -> list[dict[str, Any]]:
    """Return what the compiled kernels choose after some large rollouts in each layout."""
    if not next(backend for backend in fastgae.backends() if backend.name == "cpp").available:
        return []
    from fastgae import _core

    for shape, order, bootstrap, returns_lambda in (
        ((4096, 1024), "C", "last_values", None),
        ((256, 16384), "C", "last_values", None),
        ((256, 16384), "C", "next_values", None),
        ((256, 16384), "C", "last_values", 0.9),
        ((4096, 1024), "F", "last_values", 0.9),
        ((4096, 1024), "F", "last_values", None),
    ):
        rewards, values = (np.ones(shape, np.float32, order) for _ in range(2))  # type: ignore[call-overload]
        terminated = np.zeros(shape, bool, order)  # type: ignore[call-overload]
        following = {"next_values": values, "last_values": values[0]}[bootstrap]
        for _ in range(LARGE_CALLS):
            arguments = {bootstrap: following, "returns_lambda": returns_lambda}
            fastgae.gae(rewards, values, terminated, **arguments, backend="cpp", num_threads=1)
    ways = ("nothing", "L1", "L2", "L2, short runs")
    return [
        {"dtype": dtype, "sweep": sweep, "prefetches_into": ways[way], "gain": gain}
        for dtype, sweep, way, gain in _core.prefetching()
    ]


def _chosen_target(backend: str) -> str | None:
    return resolved(backend)["target"]


def text(facts: dict[str, Any]) -> str:
    default = facts["default_backend"]
    backends: list[tuple[str, ...]] = [("backend", "runs", "CPU targets", "built on, or why it is missing")]
    for each in facts["backends"]:
        targets = " ".join(f"[{t}]" if t == each["target"] else t for t in each["targets"]) or "-"
        runs, about = ("yes", each["version"]) if each["available"] else ("no", _indented(each["why_missing"]))
        backends.append((each["name"], runs, targets, about))
    tables: list[list[tuple[str, ...]]] = [
        [
            ("fastgae", f"{facts['fastgae']} in {facts['location']}"),
            ("python", f"{facts['python']} on {facts['platform']}"),
            ("numpy", facts["numpy"]),
            ("numba", facts["numba"] or "not installed"),
        ],
        backends,
        [
            ("default backend", ":".join(filter(None, default.values())) if default else "none: see problems"),
            ("threads", str(facts["num_threads"] or "none: see problems")),
            ("recycled memory", _recycled_in_words(facts["recycled"])),
        ],
        [
            ("environment variable", "value", "meaning"),
            *((name, v["value"] or "not set", v["meaning"]) for name, v in facts["environment"].items()),
        ],
    ]
    if facts["prefetching"]:
        tables.append([("large rollouts", "prefetch into", "times as fast as without")])
        for each in facts["prefetching"]:
            tables[-1].append((f"{each['dtype']}, {each['sweep']}", each["prefetches_into"], f"{each['gain']:.2f}"))
    sections = [*map(_columns, tables)]
    if facts["problems"]:
        sections.append("\n".join(["problems", *(f"  {_indented(problem)}" for problem in facts["problems"])]))
    return "\n\n".join(sections)


def _recycled_in_words(recycled: dict[str, int] | None) -> str:
    if recycled is None:
        return "none: see problems"
    if not recycled:
        return "none, without the compiled module"
    if recycled["limit"] == 0:
        return "none, because FASTGAE_RECYCLE is 0"
    held, limit = (f"{recycled[name] / 2**20:.0f} MiB" for name in ("held", "limit"))
    return f"{held} of {limit} held; {recycled['hits']} results used it, {recycled['misses']} needed fresh memory"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _indented(message: str) -> str:
    return "\n    ".join(message.splitlines())
