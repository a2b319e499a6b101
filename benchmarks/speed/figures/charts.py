"""Draw the charts: dots on one logarithmic axis, and the same bytes for the same numbers."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastgae._pictures import BLUE, INK, NOTE, PURPLE, VERMILION, new_figure, style, svg
from speed.table import ADD, LIMIT

LOOKS = ((BLUE, "o"), (VERMILION, "s"), (INK, "D"), (PURPLE, "^"))  # of the series of a chart, in their order


def digest(measured: Any) -> str:
    """Return the digest that a chart carries, so that a test sees whether it was drawn from these numbers."""
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return what figures depend on; backends that were missing are not among them."""
    left_out = ("load", "usable CPUs", "numpy")  # the version of NumPy is among the others
    shown = {name: str(value) for name, value in machine.items() if name not in left_out}
    words = (f"{name} {value.removeprefix(f'{name} ')}" for name, value in shown.items() if "missing: " not in value)
    return ", ".join(words)


def throughput_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw the speed of each backend on plain rollouts, with np.add as 1."""
    rows = [row for row in measured["rows"] if row["group"] == "plain"]
    speeds = {name: [row["seconds"][ADD] / row["seconds"][name] for row in rows] for name in contenders(measured)}
    label = "times as fast as np.add over as many numbers (dashed: np.add itself)"
    return _dots(measured, list(map(label_of, rows)), speeds, label, mark=1)


def contenders(measured: Mapping[str, Any]) -> list[str]:
    return [name for name in measured["rows"][0]["seconds"] if name not in (ADD, LIMIT)]


def label_of(row: Mapping[str, Any]) -> str:
    return f"{row['group']} {row['label']}".removeprefix("plain ")


def overhead_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw how long a whole call on a few numbers takes on each backend."""
    rows = measured["rows"]
    labels = [label_of(row).removesuffix(" fresh outputs") for row in rows]
    micros = {name: [row["seconds"][name] * 1e6 for row in rows] for name in contenders(measured)}
    return _dots(measured, labels, micros, "microseconds of a whole call, new outputs included")


def peers_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw how many times as long as fastgae's cpp each peer takes, for all shapes on one axis, the fastest first."""
    times = {shape: in_times_of_ours(seconds) for shape, seconds in measured["seconds"].items()}
    names = sorted(next(iter(times.values())), key=lambda name: math.prod(each[name] for each in times.values()))
    ratios = {shape: [each[name] for name in names] for shape, each in times.items()}
    return _dots(measured, names, ratios, "times as long as fastgae on its cpp backend (dashed)", mark=1)


def in_times_of_ours(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: each / seconds["fastgae, cpp"] for name, each in seconds.items()}


def _dots(
    measured: Mapping[str, Any],
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    label: str,
    mark: float | None = None,
) -> bytes:
    """Draw a row for each label, with a dot for each of the series."""
    figure = new_figure(8, 0.36 * len(labels) + 1.2)
    axes = figure.subplots()
    style(axes, "both")
    axes.tick_params(axis="y", length=0, pad=8)
    axes.spines["left"].set_visible(False)
    if mark is not None:
        axes.axvline(mark, color=NOTE, linestyle="--", linewidth=1)
    apart = 0.2  # of a row, so that no dot hides another one
    for place, ((name, numbers), (color, marker)) in enumerate(zip(series.items(), LOOKS, strict=False)):
        rows = [row + (place - (len(series) - 1) / 2) * apart for row in range(len(labels))]
        axes.plot(numbers, rows, marker, color=color, markersize=6, label=name, clip_on=False)
    axes.set_xscale("log")
    axes.set_xlim(left=10 ** math.floor(math.log10(min(map(min, series.values())))))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(label)
    figure.legend(loc="outside upper left", ncols=len(series), frameon=False, labelcolor=INK, handletextpad=0.2)
    return svg(figure, digest(measured))
