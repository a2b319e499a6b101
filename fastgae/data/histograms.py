"""Counts of numbers in bins for a picture, from a sample if there are very many numbers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import arrays_of

MOST = 500_000  # numbers of each kind
BINS = 80
TAILS = 0.005  # of the numbers at either end that may lie outside, where they lie far away
LARGEST = 1e300  # beyond, the width of a range may be infinite
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / the golden ratio


class Bars(NamedTuple):
    """Counts of numbers in bins, and of the numbers outside."""

    edges: Array
    counts: Array
    outside: int
    not_finite: int
    least: float
    largest: float


class Density(NamedTuple):
    """Counts of pairs in a square of bins."""

    edges: Array  # of the first number, and of the second
    counts: Array  # by the bin of the first number, and of the second
    outside: int
    not_finite: int


def sample_of(tables: Iterable[pa.Table], names: Sequence[str], steps: int) -> dict[str, Array]:
    """Return columns of consecutive tables, as float64: all numbers, or about MOST of them if there are more."""
    parts: dict[str, list[Array]] = {name: [] for name in names}
    first = 0
    for table in tables:
        columns = {name: arrays_of(table[name]).reshape(-1) for name in names}
        count = len(columns[names[0]])
        chosen = _chosen(first, count, steps)
        for name, numbers in columns.items():
            parts[name].append(numbers[chosen].astype(np.float64))
        first += count
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


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


def bars_of(numbers: Array) -> Bars | None:
    """Return the distribution of numbers; None if none is finite."""
    finite = _is_finite(numbers)
    distinct, counts = np.unique(numbers[finite], return_counts=True)
    if not len(distinct):
        return None
    edges = np.linspace(*shown_range(distinct, counts), BINS + 1)
    return _bars(edges, distinct, counts, len(numbers) - int(np.count_nonzero(finite)))


def bars_of_lengths(lengths: Array, counts: Array) -> Bars:
    """Return the distribution of increasing integers, each with its count, in bins of whole numbers."""
    low, high = shown_range(lengths, counts)
    low, high = max(np.ceil(low), 1), np.floor(high)
    width = -(-(high - low + 1) // BINS)
    return _bars(np.arange(low, high + width + 1, width) - 0.5, lengths, counts, 0)


def _bars(edges: Array, numbers: Array, counts: Array, not_finite: int) -> Bars:
    drawn = np.histogram(numbers, edges, weights=counts)[0].astype(np.int64)
    return Bars(edges, drawn, int(counts.sum() - drawn.sum()), not_finite, float(numbers[0]), float(numbers[-1]))


def density_of(x: Array, y: Array) -> Density | None:
    """Return the distribution of pairs, in one range for both numbers; None if no pair is finite."""
    finite = _is_finite(x) & _is_finite(y)
    bad = len(x) - int(np.count_nonzero(finite))
    x, y = x[finite], y[finite]
    if not len(x):
        return None
    ranges = [shown_range(*np.unique(each, return_counts=True)) for each in (x, y)]
    edges = np.linspace(min(low for low, _ in ranges), max(high for _, high in ranges), BINS + 1)
    counts = np.histogram2d(x, y, [edges, edges])[0].astype(np.int64)
    return Density(edges, counts, int(len(x) - counts.sum()), bad)


def shown_range(numbers: Array, counts: Array) -> tuple[float, float]:
    """Return the range to show for increasing numbers, each with its count.

    It holds all numbers except TAILS of them at either end, and reaches further by up to a quarter of its width.
    """
    places = np.cumsum(counts)
    low, high = (float(numbers[np.searchsorted(places, part * places[-1])]) for part in (TAILS, 1 - TAILS))
    reach = (high - low) / 4
    low, high = max(float(numbers[0]), low - reach), min(float(numbers[-1]), high + reach)
    # A range that is narrow for the size of its numbers would show nothing but their rounding.
    size = max(abs(low), abs(high)) or 1.0
    missing = 0.0 if high - low > size / 1000 else size / 2
    return low - missing, high + missing


def _is_finite(numbers: Array) -> Array:
    finite: Array = np.abs(numbers) < LARGEST
    return finite
