"""Draw the rollout of one environment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fastgae._pictures import BLUE, INK, PURPLE, VERMILION, new_figure, save, style


@dataclass(frozen=True)
class Series:
    """The rollout of one environment: arrays of shape (T,)."""

    rewards: NDArray[Any]
    values: NDArray[Any]
    advantages: NDArray[Any]
    returns: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_values: NDArray[Any]  # V(final observation) where truncated; NaN elsewhere

    def ends(self) -> NDArray[np.bool_]:
        return self.terminated | self.truncated


def draw(path: Path, title: str, series: Series) -> None:
    figure = new_figure(10, 6.5, title)
    panels = figure.subplots(3, sharex=True, height_ratios=(2, 3, 3))
    rewards, values, advantages = panels

    _line(rewards, series, series.rewards, INK)
    rewards.set_ylabel("rewards")
    rewards.update_datalim([(0.0, 0.0)])  # show zero, because rewards are compared with it

    _line(values, series, series.returns, INK)
    _line(values, series, series.values, BLUE)
    values.set_ylabel("values and returns")
    end_x = np.arange(len(series.rewards)) + 0.5
    values.plot(end_x, series.final_values, "D", color=PURPLE, markerfacecolor="white", markersize=6, zorder=4)

    _line(advantages, series, series.advantages, INK)
    x, y = _broken(series, series.advantages)
    for sign, color in ((1, BLUE), (-1, VERMILION)):
        advantages.fill_between(x, 0, sign * np.maximum(sign * y, 0), color=color, alpha=0.3, linewidth=0)
    advantages.axhline(0, color=INK, linewidth=0.8)
    advantages.set_ylabel("advantages")
    advantages.set_xlabel("step")

    for panel in panels:
        _mark_ends(panel, series)
        style(panel)
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.ticklabel_format(useOffset=False)
        panel.margins(x=0.01)
    # Differences far below the size of the returns are rounding, so they must not fill a panel.
    size = float(np.abs(series.returns[np.isfinite(series.returns)]).max(initial=0.0))
    for panel in (values, advantages):
        low, high = panel.get_ylim()
        missing = max(0.0, 0.01 * size - (high - low))
        panel.set_ylim(low - missing / 2, high + missing / 2)
    advantages.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    figure.align_ylabels()
    figure.legend(handles=_legend(series), loc="outside lower left", ncols=5, frameon=False)
    save(figure, path)


def _broken(series: Series, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the points with a gap after each end of an episode, because the next point is of another episode."""
    after = np.flatnonzero(series.ends()) + 1
    return np.insert(np.arange(len(y), dtype=float), after, np.nan), np.insert(y.astype(float), after, np.nan)


def _line(panel: Axes, series: Series, y: NDArray[Any], color: str) -> None:
    # The dots show episodes of a single step, which have no line.
    size = 4 if len(y) <= 300 else 1.5
    panel.plot(*_broken(series, y), color=color, linewidth=1.4, marker=".", markersize=size, zorder=3)


def _mark_ends(panel: Axes, series: Series) -> None:
    width = 1.2 if series.ends().sum() <= 40 else 0.5
    for t in np.flatnonzero(series.ends()):
        color, style = (VERMILION, "-") if series.terminated[t] else (PURPLE, "--")
        panel.axvline(t + 0.5, color=color, linestyle=style, linewidth=width, zorder=2)


def _legend(series: Series) -> list[Line2D]:
    def entry(label: str, color: str, **style: Any) -> Line2D:
        return Line2D([], [], color=color, label=label, **style)

    handles = [entry("returns R", INK, linewidth=1.4), entry("values V", BLUE, linewidth=1.4)]
    if series.terminated.any():
        handles.append(entry("episode terminated", VERMILION))
    if series.truncated.any():
        handles.append(entry("episode truncated", PURPLE, linestyle="--"))
        diamond = {"marker": "D", "markerfacecolor": "white", "markersize": 6, "linestyle": "none"}
        handles.append(entry("V(final observation)", PURPLE, **diamond))
    return handles
