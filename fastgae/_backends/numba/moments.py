"""What normalisation adds up, and what it then writes: in float64, in the order of the reference.

A step that does not exist adds 0: that is no different from leaving it out, for no sum that begins with 0 is ever -0.
"""

import numpy as np
from numba import njit, prange, types

from fastgae._backends.numba.language import LANES, array_of, at, restrict
from fastgae._canonical import BLOCK

RUN = 512  # elements


@njit
def _term(number, exists, center, squared):
    term = number - center
    term = term * term if squared else term
    return term if exists != 0 else 0.0


@njit
def _exists(mask, t, n, all_exist):
    """The mask has no elements where all steps exist."""
    return at(mask, t, n) if len(mask) else at(all_exist, 0, 0)


# --- time-major ------------------------------------------------------------------------------------------------------


@njit
def _add_row(size, numbers, exists, center, squared, sums):
    restrict()
    for n in range(size):
        sums[n] += _term(numbers[n], exists[n], center[n], squared)


@njit
def _rescale_row(size, exists, center, scale, numbers):
    restrict()
    for n in range(size):
        number = numbers[n]
        scaled = (number - center[n]) * scale[n]
        numbers[n] = scaled if exists[n] != 0 else number


def block_sums_time_major(first, last, matrix, mask, center, scale, squared, sums, filled):
    all_exist = np.ones((1, RUN), np.uint8)
    for t in range(len(matrix)):
        for n in range(first, last, RUN):
            _add_row(
                min(RUN, last - n), at(matrix, t, n), _exists(mask, t, n, all_exist), at(center, 0, n),
                squared, at(sums, t // BLOCK, n),
            )  # fmt: skip


def rescale_time_major(first, last, matrix, mask, center, scale, squared, sums, filled):
    all_exist = np.ones((1, RUN), np.uint8)
    for t in range(len(filled)):
        for n in range(first, last, RUN):
            _rescale_row(
                min(RUN, last - n), _exists(mask, t, n, all_exist), at(center, 0, n), at(scale, 0, n),
                at(filled, t, n),
            )  # fmt: skip


# --- env-major -------------------------------------------------------------------------------------------------------


@njit
def _terms(size, numbers, exists, center, squared, terms):
    restrict()
    for t in range(size):
        terms[t] = _term(numbers[t], exists[t], center, squared)


@njit
def _add_lines(size, lines, totals):
    """Envs side by side: in one alone each addition waits for the one before."""
    restrict()
    for lane in range(LANES):
        totals[lane] = 0
    for t in range(size):
        for lane in range(LANES):
            totals[lane] += lines[lane * BLOCK + t]


@njit
def _rescale_line(size, exists, center, scale, numbers):
    restrict()
    for t in range(size):
        number = numbers[t]
        scaled = (number - center) * scale
        numbers[t] = scaled if exists[t] != 0 else number


def block_sums_env_major(first, last, matrix, mask, center, scale, squared, sums, filled):
    steps = len(matrix)
    all_exist = np.ones((1, BLOCK), np.uint8)
    lines, totals = np.zeros((LANES, BLOCK)), np.empty((1, LANES))
    for left in range(first, last, LANES):
        envs = min(LANES, last - left)
        for start in range(0, steps, BLOCK):
            size = min(BLOCK, steps - start)
            for lane in range(envs):
                n = left + lane
                _terms(
                    size, at(matrix, start, n), _exists(mask, start, n, all_exist), center[0, n],
                    squared, at(lines, lane, 0),
                )  # fmt: skip
            _add_lines(size, at(lines, 0, 0), at(totals, 0, 0))
            for lane in range(envs):
                sums[start // BLOCK, left + lane] = totals[0, lane]


def rescale_env_major(first, last, matrix, mask, center, scale, squared, sums, filled):
    steps = len(filled)
    all_exist = np.ones((1, RUN), np.uint8)
    for n in range(first, last):
        for t in range(0, steps, RUN):
            _rescale_line(
                min(RUN, steps - t), _exists(mask, t, n, all_exist), center[0, n], scale[0, n],
                at(filled, t, n),
            )  # fmt: skip


# --- how they are called ---------------------------------------------------------------------------------------------


def arguments(real):
    """The types that follow ``first, last``. Sums are of ``matrix``; what is rescaled, in place, is ``filled``."""
    rows, sums, filled = (
        array_of(types.float64, 2), array_of(types.float64, 2, readonly=False), array_of(real, 2, readonly=False),
    )  # fmt: skip
    return array_of(real, 2), array_of(types.boolean, 2), rows, rows, types.boolean, sums, filled


def in_parallel(kernel, bounds, matrix, mask, center, scale, squared, sums, filled):
    for i in prange(len(bounds) - 1):
        kernel(bounds[i], bounds[i + 1], matrix, mask, center, scale, squared, sums, filled)
