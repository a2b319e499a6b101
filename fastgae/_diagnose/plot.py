"""Draw one env of a rollout, with the steps that a finding suspects."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._support.pictures import BLUE, INK, PURPLE, VERMILION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_STEPS = 300  # in a picture


class Column(NamedTuple):
    """One env of a rollout: copies, because a training loop may write into its arrays before it draws."""

    env: tuple[int, ...]
    series: dict[str, Array]
    terminated: Array
    truncated: Array
    shape: tuple[int, int]  # of the rollout


def draw(column: Column, title: str, times: Sequence[int], marks: Sequence[tuple[int, int]]) -> "Figure":
    """Mark steps and envs in the rollout, and draw the steps of an env around the first of its times."""
    first = max(0, times[0] - MOST_STEPS // 10) if times else 0
    shown = np.arange(len(column.terminated))[first : first + MOST_STEPS]
    suspect = np.intersect1d(shown, np.array(times, int))
    figure = new_figure(9, 6.5, f"{title}, env {', '.join(map(str, column.env))}" if column.env else title)
    whole, *panels = figure.subplots(4)
    for panel in panels[1:]:
        panel.sharex(panels[0])
    whole.plot(*np.array(marks, int).reshape(-1, 2).T, "|", color=VERMILION, markersize=6, rasterized=True)
    whole.set(ylabel="env", xlim=(-0.5, max(1, column.shape[0]) - 0.5), ylim=(max(1, column.shape[1]) - 0.5, -0.5))
    style(whole)
    ends = ((column.terminated, "-", INK), (column.truncated & ~column.terminated, "--", PURPLE))
    for panel, (name, numbers), color in zip(panels, column.series.items(), (INK, BLUE, INK), strict=True):
        panel.plot(shown, numbers[shown], color=color, linewidth=1.2, marker=".", markersize=3, zorder=3)
        for flags, line, end_color in ends:
            places = {"ymin": 0, "ymax": 1, "transform": panel.get_xaxis_transform()}
            panel.vlines(shown[flags[shown]] + 0.5, linestyles=line, colors=end_color, linewidth=0.8, **places)
        panel.plot(suspect, numbers[suspect], "o", color=VERMILION, markersize=5, zorder=4, rasterized=True)
        panel.set_ylabel(name)
        style(panel)
        panel.margins(x=0.01)
    for axis in (whole.xaxis, whole.yaxis, panels[-1].xaxis):
        axis.get_major_locator().set_params(integer=True)
        axis.get_major_formatter().set_useOffset(False)  # steps have their own numbers
    panels[-1].set_xlabel("step; a circle: suspect; a line: the episode ends, dashed where it is truncated")
    figure.align_ylabels()
    return figure
