"""Exact sums of numbers and of their squares, as Python integers, and means of groups from exact sums.

A finite float is an integer times a power of two. A backend cuts that integer and its square into digits, and adds them
up in one bin for each exponent and digit. No bin is ever rounded, so any order of additions gives the same bins, and
``totals`` puts them together.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array

DIGIT_BITS = 27
DIGIT = 2**DIGIT_BITS - 1
SUM_UNIT = -1074  # sums are in units of 2**SUM_UNIT, the smallest float64, and sums of squares in its square
MOST_AT_ONCE = 2**36  # numbers that a backend may add up at once: the sum of this many digits always fits into an int64


class Format(NamedTuple):
    """How the numbers of a dtype lie in memory, and how many digits they have."""

    bits: type[np.signedinteger[Any]]
    fraction_bits: int
    exponents: int
    number_digits: int  # the digits of the number come first, and then twice as many of its square
    lowest: int  # the power of two that a number of exponent 1 is multiplied by

    @property
    def digits(self) -> int:
        return 3 * self.number_digits


FORMATS = {
    np.dtype(np.float32): Format(np.int32, 23, 256, 1, -149),
    np.dtype(np.float64): Format(np.int64, 52, 2048, 2, -1074),
}


def totals(bins: Array) -> tuple[int, int]:
    """Return the sum of the numbers and the sum of their squares, in their units; ``bins`` is (exponents, digits)."""
    given = next(each for each in FORMATS.values() if bins.shape == (each.exponents, each.digits))
    total = total_of_squares = 0
    filled = np.flatnonzero(bins.any(axis=1))  # few exponents occur in an array
    for exponent, digits in zip(filled.tolist(), bins[filled].tolist(), strict=True):
        # Subnormal numbers have exponent 0, and the same power of two as numbers of exponent 1.
        power = max(exponent, 1) - 1 + given.lowest - SUM_UNIT
        total += _put_together(digits[: given.number_digits]) << power
        total_of_squares += _put_together(digits[given.number_digits :]) << 2 * power
    return total, total_of_squares


def _put_together(digits: list[int]) -> int:
    return sum(digit << DIGIT_BITS * place for place, digit in enumerate(digits))


def quotient(numerator: int, denominator: int) -> float:
    """Return the float64 nearest to a quotient; infinity beyond float64."""
    try:
        return numerator / denominator  # Python rounds a quotient of integers once
    except OverflowError:  # only a variance can be so large, and it is not negative
        return math.inf


def root_of_quotient(numerator: int, denominator: int) -> float:
    """Return the float64 nearest to the square root of a quotient of integers that are not negative.

    The root is cut off far beyond the bits of a float64. One more bit says whether anything was cut off, so the result
    rounds as the root itself would.
    """
    shift = max(0, 64 + (denominator.bit_length() - numerator.bit_length()) // 2)
    scaled = numerator << 2 * shift
    root = math.isqrt(scaled // denominator)
    is_exact = root * root * denominator == scaled
    return quotient(2 * root + (not is_exact), 2 << shift)


def sums_by_numpy(matrix: Array, mask: Array | None) -> tuple[Array, tuple[int, int, int, int]]:
    """Fill the bins with NumPy, for backends without their own kernel."""
    given = FORMATS[matrix.dtype]
    bins, counts = np.zeros((given.exponents, given.digits), np.int64), np.zeros(4, np.int64)
    # Chunks bound the memory. bincount adds up in float64, where the digits of so few numbers have an exact sum.
    operands = [matrix, np.True_ if mask is None else mask]
    for numbers, exists in np.nditer(operands, ["external_loop", "buffered", "zerosize_ok"], buffersize=2**16):
        existing = numbers[exists]
        nans, infinite = np.isnan(existing), np.isinf(existing)
        counts += [existing.size, nans.sum(), (infinite & (existing > 0)).sum(), (infinite & (existing < 0)).sum()]
        finite = existing[~(nans | infinite)]
        exponent, digits = digits_of(finite.view(given.bits).astype(np.int64), given)
        for column, digit in enumerate(digits):
            bins[:, column] += np.bincount(exponent.astype(np.intp), digit, given.exponents).astype(np.int64)
    return bins, (int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3]))


def digits_of(bits: Any, given: Format) -> tuple[Any, list[Any]]:
    """Return the exponents of finite numbers, and their digits and those of their squares.

    ``bits`` are the numbers as signed integers, in an int64 array of NumPy or of another library.
    """
    hidden = 1 << given.fraction_bits  # the first bit of every number that is not subnormal
    exponent = (bits >> given.fraction_bits) & (given.exponents - 1)
    integer = (bits & (hidden - 1)) + hidden * exponent.clip(0, 1)
    number = [(integer >> DIGIT_BITS * i) & DIGIT for i in range(given.number_digits)]
    sign = 1 - 2 * (bits < 0)
    return exponent, [*(sign * digit for digit in number), *_squared(number)]


def _squared(number: list[Any]) -> list[Any]:
    """Return the digits of the square of a number, which has twice as many digits."""
    count, carry = len(number), 0 * number[0]
    square = []
    for place in range(2 * count - 1):
        for i in range(max(0, place - count + 1), min(place + 1, count)):
            carry = carry + number[i] * number[place - i]
        square.append(carry & DIGIT)
        carry = carry >> DIGIT_BITS
    return [*square, carry]


def means_by_group(numbers: Array, group: Array, counts: Array) -> Array:
    """Return the mean of each group, from a sum that is rounded once; 0 for empty groups.

    ``group`` is the index of each number's group, and ``counts`` says how many numbers each group has.
    """
    finite = np.isfinite(numbers)
    if not finite.all():
        others = np.bincount(group, np.where(finite, 0.0, numbers), len(counts))  # NaN and infinities in any order
        return means_by_group(np.where(finite, numbers, 0.0), group, counts) + others
    longest = int(counts.max(initial=1)).bit_length()
    rest, rounded, parts = numbers.copy(), np.empty_like(numbers), []
    while largest := max(rest.max(initial=0.0), -rest.min(initial=0.0)):
        exponent = math.frexp(largest)[1]
        if exponent > 900:  # the anchor could overflow; small numbers of the other groups could underflow
            large = np.bincount(group, abs(numbers) >= 2.0**900, len(counts)) > 0
            scale = np.where(large, 2.0**-200, 1.0)
            scaled: Array = means_by_group(numbers * scale[group], group, counts)
            return scaled / scale
        # Adding a large number rounds to a unit that is so coarse that no sum of rounded numbers needs a 54th bit.
        anchor = math.ldexp(1.5, exponent + longest)
        np.subtract(np.add(rest, anchor, out=rounded), anchor, out=rounded)
        rest -= rounded
        parts.append(np.bincount(group, rounded, len(counts)))
    if not parts:
        return np.zeros(len(counts))
    sums = parts[0] if len(parts) == 1 else list(map(math.fsum, np.transpose(parts).tolist()))
    means: Array = np.divide(sums, np.maximum(counts, 1))
    return means
