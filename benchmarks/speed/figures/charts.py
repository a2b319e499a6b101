"""Draw the charts: dots on one logarithmic axis, and the same bytes for the same numbers."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastgae._support.pictures import BLUE, INK, NOTE, PURPLE, SHADES, VERMILION, new_figure, style, svg
from speed.table import ADD, LIMIT
from speed.text import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


# The start page: the columns of "peers" and the rows of "tokens" that it shows, and what each bar is called.
HOME = {"128×8": "8 environments, 128 steps", "2048×64": "64 environments, 2,048 steps"}
HOME_TOKENS = {(64, 4096): "64 answers of 4,096 tokens", (1, 131072): "one answer of 131,072 tokens"}
BARS = {
    "fastgae, cpp": "fastgae",
    "hand-written Numba loop": "a hand-written Numba loop",
    "JAX, lax.scan": "JAX, a scan under jit",
    "Stable-Baselines3": "Stable-Baselines3's loop",
}


def home_bars(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return what the chart of the start page shows: seconds by bar, for each thing that is computed."""
    groups = {}
    for column, what in HOME.items():
        seconds = results["peers"]["seconds"][column]
        groups[what] = {shown: seconds[name] for name, shown in BARS.items() if name in seconds}
    tokens = [row for row in results.get("tokens", {"rows": []})["rows"] if row["values"] == "float32"]
    for size, what in HOME_TOKENS.items():
        if rows := [row for row in tokens if (row["answers"], row["tokens"]) == size]:
            # A library may do more than the loop, such as whitening, which fastgae.compat then does, too.
            ours = max(row["after_seconds"] for row in rows)
            groups[what] = {"fastgae": ours} | {f"{row['library']}'s function": row["before_seconds"] for row in rows}
    return groups


def home_chart(results: Mapping[str, Any]) -> bytes:
    """Draw a bar for each loop that people have, and ours above them, on one logarithmic axis of time."""
    groups = home_bars(results)
    figure = new_figure(5.2, 0.24 * sum(len(bars) + 1.6 for bars in groups.values()) + 0.5)
    _bars(figure.subplots(), groups)
    return svg(figure, digest(groups))


def card(results: Mapping[str, Any]) -> "Figure":
    """Draw what other sites show beside a link to ours, 1200 × 630 points: the last group of the start page."""
    figure = new_figure(8, 4.2)
    figure.suptitle("fastgae", x=0.03, ha="left", fontsize=36, fontweight="bold", color=BLUE)
    axes = figure.subplots()
    axes.set_title("Advantages for PPO and RLHF: the same bits on every backend\n", loc="left", fontsize=15, color=INK)
    _bars(axes, dict([*home_bars(results).items()][-1:]))
    return figure


def _bars(axes: "Axes", groups: Mapping[str, Mapping[str, float]]) -> None:
    micros = [seconds * 1e6 for bars in groups.values() for seconds in bars.values()]
    style(axes, "x")
    axes.set_xscale("log")
    row, left = 0.0, 10 ** math.floor(math.log10(min(micros) / 1.2))
    for what, bars in groups.items():
        axes.text(left, row, what, color=INK, fontweight="bold", va="center")
        for name, seconds in bars.items():
            row += 1
            ours, label = name == "fastgae", f"{name}: {duration(seconds, '.3g')}"
            axes.barh(row, seconds * 1e6 - left, 0.7, left, color=BLUE if ours else SHADES[0])
            axes.text(seconds * 1.1e6, row, label, color=BLUE if ours else INK, va="center")
        row += 1.6
    axes.set_ylim(row - 0.8, -0.8)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xticks([1, 1e3, 1e6], ["1 µs", "1 ms", "1 s"])
    axes.set_xlim(left, max(micros) * 400)  # room for the words behind the longest bar
    axes.set_xlabel("time of one call on one CPU; shorter is better", color=NOTE)


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
