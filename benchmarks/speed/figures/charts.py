"""Draw the charts: SVG that reads on white and on dark, and the same bytes for the same numbers."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

GREY = "#7d8590"  # text and lines; as far from white as from black
COLOURS = ("#2f81f7", "#3fa34d", "#d1822b", "#b05fd6", "#d9534f")
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fastgae",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "figure.constrained_layout.use": True,
}


def digest(measured: Any) -> str:
    """Return the digest that a chart carries, so that a test sees whether it was drawn from these numbers."""
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()


def machine_line(machine: Mapping[str, Any]) -> str:
    left_out = ("load", "usable CPUs")
    return ", ".join(f"{name} {value}" for name, value in machine.items() if name not in left_out)


def throughput_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw the speed of each backend on plain rollouts, with np.add as 1."""
    rows = [row for row in measured["rows"] if row["group"] == "plain"]
    names = [result["name"] for result in rows[0]["results"]]
    bars = {
        name: [1 / result["ratio_to_add_best"] for row in rows for result in row["results"] if result["name"] == name]
        for name in names
    }
    figure, axes = _figure(len(rows) * 0.55 + 1.4)
    _grouped(axes, [label_of(row) for row in rows], bars)
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("speed in np.add over as many numbers (dashed: np.add itself)")
    return _svg(figure, measured)


def label_of(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (row["group"], f"{row['steps']}×{row['envs']}", row["detail"]))).removeprefix("plain ")


def overhead_chart(measured: Mapping[str, Any]) -> bytes:
    rows = measured["rows"]
    names = [result["name"] for result in rows[0]["results"]]
    bars = {
        name: [r["best_seconds"] * 1e6 for row in rows for r in row["results"] if r["name"] == name] for name in names
    }
    figure, axes = _figure(len(rows) * 0.5 + 1.2)
    _grouped(axes, [label_of(row).removesuffix(" fresh outputs") for row in rows], bars)
    axes.set_xscale("log")
    axes.set_xlim(left=0.5)
    axes.set_xlabel("microseconds of a whole call, new outputs included")
    return _svg(figure, measured)


def threads_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw how many times as fast each number of threads is as one thread of the same backend."""
    rows = measured["rows"]
    bars: dict[str, list[float]] = {}
    for row in rows:
        one: dict[str, float] = {}
        for result in row["results"]:
            seconds = one.setdefault(result["backend"], result["best_seconds"])
            bars.setdefault(result["name"], []).append(seconds / result["best_seconds"])
    bars = {name: speeds for name, speeds in bars.items() if not name.endswith(" 1 thread")}
    figure, axes = _figure(len(rows) * 0.4 + 1.2)
    _grouped(axes, [label_of(row) for row in rows], bars)
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("times as fast as one thread (dashed: no faster)")
    return _svg(figure, measured)


def peers_chart(measured: Mapping[str, Any]) -> bytes:
    """Draw how many times as long as fastgae's cpp each peer takes, one panel per shape."""
    rows = measured["rows"]
    names = [name for name in measured["peers"] if "best_seconds" in rows[0]["results"][name]]
    figure, panels = _figure(len(names) * 0.28 + 1.1, len(rows))
    for axes, row in zip(panels, rows, strict=True):
        seconds = [row["results"][name]["best_seconds"] for name in names]
        ratios = [each / seconds[0] for each in seconds]
        axes.barh(range(len(names)), ratios, color=[COLOURS[0] if "fastgae" in name else GREY for name in names])
        axes.set_xscale("log")
        axes.set_title(f"{row['steps']}×{row['envs']}", fontsize=10)
        for place, ratio in enumerate(ratios):
            axes.annotate(
                f" {ratio:,.3g}" if ratio < 100 else f" {ratio:,.0f}", (ratio, place), va="center", fontsize=8
            )
        axes.set_xlim(min(ratios) / 3, max(ratios) * 15)
        axes.invert_yaxis()
    panels[0].set_yticks(range(len(names)), names)
    figure.supxlabel("times as long as fastgae on its cpp backend", fontsize=10)
    return _svg(figure, measured)


def _figure(height: float, panels: int = 1) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(STYLE)
    figure = Figure(figsize=(8, height))
    return figure, figure.subplots(1, panels, sharey=True)


def _grouped(axes: Any, labels: Sequence[str], bars: Mapping[str, Sequence[float]]) -> None:
    height = 0.8 / len(bars)
    for place, (name, lengths) in enumerate(bars.items()):
        where = [row + (place - (len(bars) - 1) / 2) * height for row in range(len(labels))]
        axes.barh(where, lengths, height * 0.9, label=name, color=COLOURS[place % len(COLOURS)])
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)


def _svg(figure: Any, measured: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    about = {"Date": None, "Creator": None, "Description": digest(measured)}
    figure.savefig(buffer, format="svg", transparent=True, metadata=about)
    return b"\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + b"\n"
