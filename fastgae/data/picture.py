"""One picture of what was computed: advantages, episode lengths, and returns against values.

Advantages and returns are read once more from the temporary results: all of them, or if they are many, a sample that
depends only on the row numbers, so a resumed run draws the same picture. Episode lengths are always exact.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import fastgae
from fastgae._call import Array
from fastgae._pictures import BLUE, INK, NOTE, SHADES, VERMILION, new_figure, picture_path, save, style
from fastgae.data.arrays import arrays_of
from fastgae.data.errors import WriteError
from fastgae.data.estimators import How
from fastgae.data.extras import brought_by
from fastgae.data.plan import Plan
from fastgae.data.progress import Advance
from fastgae.data.report import Sums
from fastgae.data.spool import LAST, Spool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 500_000  # numbers of each kind in the sample
BINS = 80
TAILS = 0.005  # of the numbers at either end that may lie outside, where they lie far away
LARGEST = 1e300  # beyond, the width of a range may be infinite
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / the golden ratio


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
    taken = [name for result, name in plan.format.results.items() if result == "returns" or sums.advantages.count]
    parts: dict[str, list[Array]] = {name: [] for name in taken}
    ends: list[Array] = []
    first = 0
    for number in reversed(range(runs)):
        table = spool.table(number)
        last = arrays_of(table[LAST]).reshape(len(table), -1)
        row, env = np.nonzero(last)
        ends.append(env * plan.rows + first + row)  # as if the envs followed each other; each env ends with an end
        chosen = _chosen(first * last.shape[1], last.size, sums.steps)
        for name in taken:
            parts[name].append(arrays_of(table[name]).reshape(-1)[chosen].astype(np.float64))
        first += len(table)
        advance(len(table))
    lengths = np.diff(np.sort(np.concatenate(ends)), prepend=-1)
    *advantages, returns = map(np.concatenate, parts.values())
    figure = figure_of(spool.out.name, plan.how, sums, lengths, returns, *advantages)
    try:
        save(figure, path)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from error


def _chosen(first: int, count: int, steps: int) -> Array | slice:
    """Return which of the numbers from the first one on are in the sample.

    The fractions of the multiples of the golden ratio lie evenly between 0 and 1, and so do the fractions of every k-th
    multiple. Taking every k-th number instead would find the same steps of all episodes, if the episodes have one
    length.
    """
    if steps <= MOST:
        return slice(None)
    chosen: Array = np.arange(first, first + count, dtype=np.uint64) * GOLDEN < np.uint64(2**64 // steps * MOST)
    return chosen


def figure_of(
    name: str, how: How, sums: Sums, lengths: Array, returns: Array, advantages: Array | None = None
) -> "Figure":
    """Return the picture of all episode lengths, and of a sample of returns, and of advantages if there are any."""
    drawn = f"a sample of {len(returns):,} steps" if len(returns) < sums.steps else "all steps"
    count = 2 if advantages is None else 3
    title = f"{name}: {_counted(sums.steps, 'step')} in {_counted(sums.episodes, 'episode')}"
    figure = new_figure(4.8 * count, 4.8, title)
    panels = figure.subplots(1, count)
    if advantages is None:
        _draw_distribution(panels[0], returns, sums.returns, "return R")
    else:
        _draw_distribution(panels[0], advantages, sums.advantages, "advantage A")
        _draw_density(panels[2], returns, advantages, sums.explained_variance)
    _draw_lengths(panels[1], lengths)
    options = "".join(f", {option} {number}" for option, number in {"gamma": how.gamma, **how.options}.items())
    note = f"{how.estimator}{options}. The picture shows {drawn}, and the lengths of all episodes."
    figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=NOTE)
    return figure


def _draw_distribution(panel: "Axes", numbers: Array, moments: fastgae.Moments, what: str) -> None:
    """Draw a distribution of advantages or returns."""
    _name(
        panel, f"Distribution of {what.split()[0]}s", f"mean {moments.mean:.4g}, standard deviation {moments.std:.4g}"
    )
    finite = numbers[_is_finite(numbers)]
    label = f"{what}, in units of the rewards"
    if len(finite):
        _draw_bars(
            panel, finite, np.linspace(*shown_range(finite), BINS + 1), label, "step", len(numbers) - len(finite)
        )
    else:
        _say_nothing(panel, label)


def _draw_lengths(panel: "Axes", lengths: Array) -> None:
    """Draw the distribution of the episode lengths, in bins of whole numbers."""
    reach = f"from {lengths.min():,} to {lengths.max():,} steps"
    _name(panel, "Episode lengths", f"{reach}, mean {lengths.mean():,.4g}")
    low, high = shown_range(lengths)
    low, high = max(np.ceil(low), 1), np.floor(high)
    width = -(-(high - low + 1) // BINS)
    _draw_bars(panel, lengths, np.arange(low, high + width + 1, width) - 0.5, "length in steps", "episode", 0)


def _draw_bars(panel: "Axes", numbers: Array, edges: Array, label: str, counted: str, not_finite: int) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    low, high = edges[[0, -1]]
    panel.hist(numbers, edges.tolist(), color=BLUE, histtype="stepfilled")
    if low < 0 < high:
        panel.axvline(0, color=INK, linewidth=0.8)
    panel.set_xlim(low, high)
    panel.set_ylabel(f"{counted}s")
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=counted == "episode"))
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    outside = numbers[(numbers < low) | (numbers > high)]
    far = dict.fromkeys(f"{end:.4g}" for end in (numbers.min(), numbers.max()) if not low <= end <= high)
    panel.set_xlabel(label + _left_out(len(outside), not_finite, counted, f",\nas far as {' and '.join(far)}"))


def _draw_density(panel: "Axes", returns: Array, advantages: Array, explained_variance: float) -> None:
    """Draw returns against values, in one range for both."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    _name(panel, "Returns against values", f"explained variance {explained_variance:.4g}")
    panel.set_ylabel("return R")
    with np.errstate(all="ignore"):  # infinity is data here
        values = returns - advantages
    finite = _is_finite(values) & _is_finite(returns)
    values, returns = values[finite], returns[finite]
    if not len(values):
        _say_nothing(panel, "value V")
        return
    ranges = [shown_range(values), shown_range(returns)]
    line = min(low for low, _ in ranges), max(high for _, high in ranges)
    colors = LinearSegmentedColormap.from_list("steps", SHADES)
    counts, *_, mesh = panel.hist2d(values, returns, BINS, range=[line, line], cmin=1, cmap=colors, rasterized=True)
    mesh.set_norm(LogNorm(1, max(10, np.nanmax(counts, initial=0))))
    panel.plot(line, line, "--", color=VERMILION, linewidth=1.4)
    panel.set_xlim(line)
    panel.set_ylim(line)
    panel.set_aspect("equal")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    label = "value V (dashed: R = V; below it, V is too high)"
    outside = len(values) - int(np.nansum(counts))
    panel.set_xlabel(label + _left_out(outside, len(finite) - len(values), "step"))
    panel.figure.colorbar(mesh, ax=panel, label="steps", format=StrMethodFormatter("{x:,.0f}"), shrink=0.8)


def shown_range(numbers: Array) -> tuple[float, float]:
    """Return the range to show of finite numbers.

    It holds all numbers except TAILS of them at either end, and reaches further by up to a quarter of its width.
    """
    low, high = np.quantile(numbers, (TAILS, 1 - TAILS), method="inverted_cdf").tolist()
    reach = (high - low) / 4
    low, high = max(float(numbers.min()), low - reach), min(float(numbers.max()), high + reach)
    # A range that is narrow for the size of its numbers would show nothing but their rounding.
    size = max(abs(low), abs(high)) or 1.0
    missing = 0.0 if high - low > size / 1000 else size / 2
    return low - missing, high + missing


def _is_finite(numbers: Array) -> Array:
    finite: Array = np.abs(numbers) < LARGEST
    return finite


def _name(panel: "Axes", title: str, statistics: str) -> None:
    style(panel)
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
