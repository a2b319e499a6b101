"""One picture of what was computed: advantages, episode lengths, and returns against values."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._canonical.arguments import shown
from fastgae._support.pictures import BLUE, NOTE, SHADES, VERMILION, new_figure, picture_path, save, style
from fastgae.data.errors import WriteError, argument, brought_by, first_line
from fastgae.data.plan import Plan
from fastgae.data.rows import SLICE
from fastgae.data.state import ADVANTAGES, ENDS, RETURNS, Done, State

MOST = 500_000  # about so many numbers of each kind are in a sample, which depends only on the numbers of the rows
BINS = 80
TAILS = 0.005  # of the numbers at either end that may lie outside, where they lie far away


def checked_picture(given: str | os.PathLike[str]) -> Path:
    """Return the path of the picture, after a check that it can be drawn and written."""
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"{argument('plot')} must be a path, got {shown(given)}")
    try:
        path = picture_path(given)
    except ValueError as error:
        raise ValueError(f"{argument('plot')}: {error}") from error
    with brought_by("plot", f"drawing {path}"):
        import matplotlib  # noqa: F401 (only whether it is there)
    return path


def sampled(state: State, steps: int) -> tuple[Array, Array | None, Array]:
    """Return the lengths of all episodes, and advantages and returns of a sample of all steps."""
    samples: dict[str, list[Array]] = {ADVANTAGES: [], RETURNS: []}
    ends, rng = list[Array](), np.random.default_rng(0)
    for first in range(0, state.rows, SLICE):
        at = slice(first, min(first + SLICE, state.rows))
        last = state.numbers(ENDS, at).reshape(at.stop - first, -1)
        row, env = np.nonzero(last)
        ends.append(env * state.rows + first + row)  # as if the envs followed each other; each env ends with an end
        chosen = rng.random(last.size) < MOST / max(steps, MOST)
        for name, parts in samples.items():
            if (numbers := state.numbers(name, at)) is not None:
                parts.append(numbers.reshape(-1)[chosen].astype(np.float64))
    advantages = np.concatenate(samples[ADVANTAGES]) if samples[ADVANTAGES] else None
    return np.diff(np.sort(np.concatenate(ends)), prepend=-1), advantages, np.concatenate(samples[RETURNS])


def draw(plan: Plan, state: State, done: Done, path: Path) -> None:
    """Draw a sample of the results of all rows, and the lengths of all episodes."""
    lengths, advantages, returns = sampled(state, done.sums.steps)
    title = f"{state.out.name}: {done.sums.steps:,} steps in {done.sums.episodes:,} episodes"
    figure = new_figure(9.6 if advantages is None else 14.4, 4.8, title)
    first, second, *third = figure.subplots(1, 2 if advantages is None else 3)
    _histogram(first, "steps", *(("return R", returns) if advantages is None else ("advantage A", advantages)))
    _histogram(second, "episodes", "length of an episode", lengths)
    for panel in third:
        with np.errstate(all="ignore"):  # infinity is data here
            _density(panel, returns - advantages, returns)
    options = "".join(f", {name} {number}" for name, number in {"gamma": plan.how.gamma, **plan.how.options}.items())
    drawn = f"a sample of {len(returns):,} steps" if len(returns) < done.sums.steps else "all steps"
    figure.supxlabel(f"{plan.how.estimator}{options}; {drawn}", x=0.01, ha="left", fontsize=9, color=NOTE)
    try:
        save(figure, path)
    except OSError as error:
        raise WriteError(path, first_line(error)) from error


def _histogram(panel: Any, counted: str, label: str, numbers: Array) -> None:
    style(panel)
    panel.set_ylabel(counted)
    panel.yaxis.get_major_locator().set_params(integer=True)
    low, high = shown_range(numbers)
    edges = np.linspace(low, high, BINS + 1)
    if numbers.dtype.kind == "i":  # as many lengths in each bar
        width = max(1.0, np.ceil((high - low) / BINS))
        edges = np.arange(np.floor(low) - 0.5, high + width, width)
    panel.hist(numbers[np.isfinite(numbers)], edges, color=BLUE, histtype="stepfilled")
    panel.set_xlabel(label)
    if outside := np.count_nonzero(~((numbers >= low) & (numbers <= high))):
        panel.set_title(f"{outside:,} further out", loc="right", fontsize=9, color=NOTE)


def _density(panel: Any, values: Array, returns: Array) -> None:
    """Draw returns against values, in one range for both; with a good critic, they lie on the line."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    style(panel)
    low, high = shown_range(np.concatenate([values, returns]))
    margin = (high - low) / 20  # so that the outermost numbers, or all, if they are the same, are not on an axis
    line, finite = (low - margin, high + margin), np.isfinite(values) & np.isfinite(returns)
    colors = LinearSegmentedColormap.from_list("steps", SHADES)
    counts, x, y = np.histogram2d(values[finite], returns[finite], BINS, [line, line])  # hist2d draws empty bins, too
    panel.pcolor(x, y, np.ma.masked_equal(counts.T, 0), cmap=colors, norm=LogNorm(), snap=True)
    panel.plot(line, line, "--", color=VERMILION, linewidth=1.4)
    panel.set_xlabel("value V")
    panel.set_ylabel("return R")


def shown_range(numbers: Array) -> tuple[float, float]:
    """Return the range to show: of all numbers but TAILS of them at either end, and a quarter of its width more."""
    finite = numbers[np.abs(numbers) < 1e300]  # beyond, the width of a range may be infinite
    low, high = np.quantile(finite, (TAILS, 1 - TAILS)).tolist() if len(finite) else (0.0, 0.0)
    reach = (high - low) / 4
    low, high = max(float(finite.min(initial=low)), low - reach), min(float(finite.max(initial=high)), high + reach)
    size = max(abs(low), abs(high)) or 1.0  # a range that is narrow for its numbers would show nothing but rounding
    return (low, high) if high - low > size / 1000 else (low - size / 2, high + size / 2)
