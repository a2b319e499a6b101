"""Labels of advantages by a quantile over the whole source, exact for sources larger than memory."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae.data.errors import argument

LABEL = "positive"  # the column of labels
DIGIT = 16  # how many bits of the threshold one pass over all numbers finds


def checked_quantile(quantile: float) -> float:
    if not 0 < quantile < 1:
        raise ValueError(f"{argument('label_quantile')} must be a number between 0 and 1, got {quantile!r}")
    return float(quantile)


def passes_over(dtype: np.dtype[Any]) -> int:
    """Return how many times ``threshold_of`` reads all numbers."""
    return 8 * dtype.itemsize // DIGIT


def threshold_of(parts: Callable[[], Iterable[Array]], dtype: np.dtype[Any], count: int, quantile: float) -> float:
    """Return the least of all numbers that at least this part of them does not exceed.

    ``parts`` gives all numbers, in any parts. Every pass over them counts how they go on after the bits found before.
    """
    integer = np.dtype(f"u{dtype.itemsize}")
    rank = ceil(Fraction(repr(quantile)) * count)  # 0.7 means 7/10, and not the nearest float
    found = 0
    for shift in reversed(range(0, DIGIT * passes_over(dtype), DIGIT)):
        counts = np.zeros(2**DIGIT, np.int64)
        for part in parts():
            keys = _ordered(part.reshape(-1).view(integer))
            begin = keys >> integer.type(shift)
            same = begin[begin >> integer.type(DIGIT) == found]
            counts += np.bincount(same & integer.type(2**DIGIT - 1), minlength=2**DIGIT)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank))
        rank -= int(below[digit] - counts[digit])
        found = found << DIGIT | digit
    least: float = _numbers(np.array([found], integer)).view(dtype)[0].item()
    return least


def _ordered(bits: Array) -> Array:
    """Return integers in the order of the floats with these bits: all bits of negative ones turned, else the sign."""
    sign = bits.dtype.type(1 << (8 * bits.dtype.itemsize - 1))
    ordered: Array = np.where(bits & sign, ~bits, bits | sign)
    return ordered


def _numbers(ordered: Array) -> Array:
    sign = ordered.dtype.type(1 << (8 * ordered.dtype.itemsize - 1))
    bits: Array = np.where(ordered & sign, ordered ^ sign, ~ordered)
    return bits
