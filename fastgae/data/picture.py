"""One picture of what was computed: advantages, episode lengths, and returns against values.

Advantages and returns are read once more from the temporary results: all of them, or if they are many, a sample that
depends only on the row numbers, so a resumed run draws the same picture. Episode lengths are always exact.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

import fastgae
from fastgae._call import Array
from fastgae._pictures import BLUE, INK, NOTE, SHADES, VERMILION, new_figure, picture_path, save, style
from fastgae.data.errors import WriteError
from fastgae.data.estimators import How
from fastgae.data.extras import brought_by
from fastgae.data.histograms import Bars, Density, bars_of, bars_of_lengths, density_of, sample_of
from fastgae.data.plan import Plan
from fastgae.data.progress import Advance
from fastgae.data.report import Sums
from fastgae.data.spool import Spool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Draws into one part of the picture.
Panel: TypeAlias = "Callable[[Axes], None]"


def checked_picture(given: str | os.PathLike[str]) -> Path:
    """Return the path of the picture, after a check that it can be drawn and written."""
    try:
        path = picture_path(given)
    except ValueError as error:
        raise ValueError(f"plot: {error}") from error
    with brought_by("plot", f"drawing {path}"):
        import matplotlib  # noqa: F401 (only whether it is there)
    return path


def draw(plan: Plan, spool: Spool, runs: int, sums: Sums, path: Path, advance: Advance) -> None:
    """Draw the temporary results of all runs."""

    def tables() -> Iterable[pa.Table]:
        for number in reversed(range(runs)):
            table = spool.table(number)
            yield table
            advance(len(table))

    names = plan.format.results
    taken = [name for result, name in names.items() if result != "advantages" or sums.advantages.count]
    sample = sample_of(tables(), taken, sums.steps)
    figure = figure_of(spool.out.name, plan.how, sums, sample[names["returns"]], sample.get(names["advantages"]))
    try:
        save(figure, path)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from error


def figure_of(name: str, how: How, sums: Sums, returns: Array, advantages: Array | None) -> "Figure":
    """Return the picture of a sample of returns, and of advantages if there are any, and of all episode lengths."""
    lengths: Panel = partial(_draw_lengths, bars_of_lengths(*sums.lengths.whole()), sums)
    drawn = f"a sample of {len(returns):,} steps" if len(returns) < sums.steps else "all steps"
    if advantages is None:
        panels = [_distribution(returns, sums.returns, "return R"), lengths]
    else:
        with np.errstate(all="ignore"):  # infinity is data here
            pairs = density_of(returns - advantages, returns)
        against: Panel = partial(_draw_density, pairs, sums.explained_variance)
        panels = [_distribution(advantages, sums.advantages, "advantage A"), lengths, against]
    title = f"{name}: {_counted(sums.steps, 'step')} in {_counted(sums.episodes, 'episode')}"
    figure = new_figure(4.8 * len(panels), 4.8, title)
    for panel, draw_into in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_into(panel)
    options = "".join(f", {option} {number}" for option, number in {"gamma": how.gamma, **how.options}.items())
    note = f"{how.estimator}{options}. The picture shows {drawn}, and the lengths of all episodes."
    figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=NOTE)
    return figure


def _distribution(numbers: Array, moments: fastgae.Moments, what: str) -> "Panel":
    """Return what draws a distribution of advantages or returns."""
    title = f"Distribution of {what.split()[0]}s"
    statistics = f"mean {moments.mean:.4g}, standard deviation {moments.std:.4g}"
    return partial(_draw_bars, bars_of(numbers), title, statistics, f"{what}, in units of the rewards", "step")


def _draw_lengths(bars: Bars, sums: Sums, panel: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    statistics = f"from {bars.least:,.0f} to {bars.largest:,.0f} steps, mean {sums.steps / sums.episodes:,.4g}"
    _draw_bars(bars, "Episode lengths", statistics, "length in steps", "episode", panel)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_bars(bars: Bars | None, title: str, statistics: str, label: str, counted: str, panel: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    style(panel)
    _name(panel, title, statistics)
    panel.set_ylabel(f"{counted}s")
    if bars is None:
        _say_nothing(panel, label)
        return
    low, high = bars.edges[[0, -1]]
    panel.stairs(bars.counts, bars.edges, fill=True, color=BLUE)
    if low < 0 < high:
        panel.axvline(0, color=INK, linewidth=0.8)
    panel.set_xlim(low, high)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    far = [
        f"{number:.4g}"
        for number, is_outside in ((bars.least, bars.least < low), (bars.largest, bars.largest > high))
        if is_outside
    ]
    reach = f",\nas far as {' and '.join(far)}"
    panel.set_xlabel(label + _left_out(bars.outside, bars.not_finite, counted, reach))


def _draw_density(density: Density | None, explained_variance: float, panel: "Axes") -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    style(panel)
    _name(panel, "Returns against values", f"explained variance {explained_variance:.4g}")
    panel.set_ylabel("return R")
    if density is None:
        _say_nothing(panel, "value V")
        return
    edges = density.edges
    colors = LinearSegmentedColormap.from_list("steps", SHADES)
    norm = LogNorm(1, max(10, density.counts.max()))
    counts = np.ma.masked_equal(density.counts.T, 0)  # the first axis of a mesh is drawn upwards
    mesh = panel.pcolormesh(edges, edges, counts, cmap=colors, norm=norm, rasterized=True)
    line = edges[[0, -1]]
    panel.plot(line, line, "--", color=VERMILION, linewidth=1.4)
    panel.set_xlim(edges[0], edges[-1])
    panel.set_ylim(edges[0], edges[-1])
    panel.set_aspect("equal")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    label = "value V (dashed: R = V; below it, V is too high)"
    panel.set_xlabel(label + _left_out(density.outside, density.not_finite, "step"))
    panel.figure.colorbar(mesh, ax=panel, label="steps", format=StrMethodFormatter("{x:,.0f}"), shrink=0.8)


def _name(panel: "Axes", title: str, statistics: str) -> None:
    panel.set_title(f"{title}\n", loc="left", fontsize=11, fontweight="bold")
    panel.annotate(statistics, (0, 1), (0, 6), "axes fraction", "offset points", color=NOTE, fontsize=9)


def _say_nothing(panel: "Axes", label: str) -> None:
    panel.set_xlabel(label)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.text(0.5, 0.5, "no finite numbers", transform=panel.transAxes, ha="center", color=NOTE)


def _left_out(outside: int, not_finite: int, counted: str, reach: str = "") -> str:
    """Return the lines below an axis label that say how many numbers the axis does not show."""
    far = f"\nnot shown: {_counted(outside, counted)} further out{reach}" if outside else ""
    bad = f"\nnot shown: {_counted(not_finite, counted)}, infinite or NaN" if not_finite else ""
    return far + bad


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
