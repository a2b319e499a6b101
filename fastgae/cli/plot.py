"""Draw the rollout of one environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fastgae._call import Array
from fastgae._support.pictures import BLUE, INK, PURPLE, VERMILION, new_figure, save, style


def draw(path: Path, title: str, series: Mapping[str, Array]) -> None:
    """Draw the arrays of one environment, of shape (T,). ``final_values`` are NaN at all but truncated steps."""
    figure = new_figure(10, 6.5, title)
    panels = figure.subplots(3, sharex=True, height_ratios=(2, 3, 3))
    rewards, values, advantages = panels
    steps = np.arange(len(series["rewards"]), dtype=float)
    ends = np.flatnonzero(series["terminated"] | series["truncated"])

    def line(panel: Axes, name: str, color: str) -> tuple[Array, Array]:
        """Draw an array with a gap after each end of an episode, because the next point is of another episode."""
        x, y = (np.insert(each.astype(float), ends + 1, np.nan) for each in (steps, series[name]))
        size = 4 if len(steps) <= 300 else 1.5  # the dots show episodes of a single step, which have no line
        panel.plot(x, y, color=color, linewidth=1.4, marker=".", markersize=size, zorder=3)
        return x, y

    line(rewards, "rewards", INK)
    rewards.set_ylabel("rewards")
    rewards.update_datalim([(0.0, 0.0)])  # show zero, because rewards are compared with it

    line(values, "returns", INK)
    line(values, "values", BLUE)
    values.set_ylabel("values and returns")
    diamond: Any = {"marker": "D", "markerfacecolor": "white", "markersize": 6, "linestyle": "none"}
    values.plot(steps + 0.5, series["final_values"], color=PURPLE, zorder=4, **diamond)

    x, y = line(advantages, "advantages", INK)
    for sign, color in ((1, BLUE), (-1, VERMILION)):
        advantages.fill_between(x, 0, sign * np.maximum(sign * y, 0), color=color, alpha=0.3, linewidth=0)
    advantages.axhline(0, color=INK, linewidth=0.8)
    advantages.set_ylabel("advantages")
    advantages.set_xlabel("step")

    for panel in panels:
        for t in ends:
            color, dashes = (VERMILION, "-") if series["terminated"][t] else (PURPLE, "--")
            panel.axvline(t + 0.5, color=color, linestyle=dashes, linewidth=1.2 if len(ends) <= 40 else 0.5, zorder=2)
        style(panel)
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.ticklabel_format(useOffset=False)
        panel.margins(x=0.01)
    # Differences far below the size of the returns are rounding, so they must not fill a panel.
    size = float(np.abs(series["returns"][np.isfinite(series["returns"])]).max(initial=0.0))
    for panel in (values, advantages):
        low, high = panel.get_ylim()
        missing = max(0.0, 0.01 * size - (high - low))
        panel.set_ylim(low - missing / 2, high + missing / 2)
    advantages.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    figure.align_ylabels()

    handles = [
        Line2D([], [], label="returns R", color=INK, linewidth=1.4),
        Line2D([], [], label="values V", color=BLUE, linewidth=1.4),
    ]
    if series["terminated"].any():
        handles.append(Line2D([], [], label="episode terminated", color=VERMILION))
    if series["truncated"].any():
        handles.append(Line2D([], [], label="episode truncated", color=PURPLE, linestyle="--"))
        handles.append(Line2D([], [], label="V(final observation)", color=PURPLE, **diamond))
    figure.legend(handles=handles, loc="outside lower left", ncols=5, frameon=False)
    save(figure, path)
