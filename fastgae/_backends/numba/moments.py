"""Add up the sums that normalisation needs, and rescale: in float64, in the order of the reference.

A step that does not exist adds 0. That changes no bit, because a sum that begins with 0 is never -0.
"""

from typing import Any, NamedTuple

import numpy as np

from fastgae._backends.numba.kernel import LANES, STEPS
from fastgae._backends.numba.language import at, at_or, inner, keep, restrict, views
from fastgae._canonical import MOMENT_STEPS


class MaskedMatrix(NamedTuple):
    """The arguments of every kernel in this file: the same for all, so that they share one parallel loop."""

    matrix: Any  # rescaled in place
    mask: Any
    center: Any  # float64, a row
    scale: Any  # float64, a row; only to rescale
    squared: Any  # whether to add up (x - center)^2
    sums: Any  # float64, (blocks, N); only to add up


@inner()
def _term(number, exists, center, squared):
    term = number - center
    term = term * term if squared else term
    return term if exists != 0 else 0.0


@inner()
def _add_row(size, numbers, exists, center, squared, sums):
    restrict()
    for n in range(size):
        sums[n] += _term(numbers[n], exists[n], center[n], squared)


@inner()
def _rescale_row(size, exists, center, scale, numbers):
    restrict()
    for n in range(size):
        number = numbers[n]
        scaled = (number - center[n]) * scale[n]
        numbers[n] = scaled if exists[n] != 0 else number


def block_sums_time_major(first, last, arguments):
    """Add up MOMENT_STEPS steps of each env, row by row."""
    given = views(MaskedMatrix, arguments)
    all_exist = np.ones((1, STEPS), np.uint8)
    for t in range(given.matrix.steps):
        for n in range(first, last, STEPS):
            _add_row(
                min(STEPS, last - n), at(given.matrix, t, n), at_or(given.mask, t, n, at(all_exist, 0, 0)),
                at(given.center, 0, n), given.squared, at(given.sums, t // MOMENT_STEPS, n),
            )  # fmt: skip
    keep(all_exist)


def rescale_time_major(first, last, arguments):
    """Rescale row by row."""
    given = views(MaskedMatrix, arguments)
    all_exist = np.ones((1, STEPS), np.uint8)
    for t in range(given.matrix.steps):
        for n in range(first, last, STEPS):
            _rescale_row(
                min(STEPS, last - n), at_or(given.mask, t, n, at(all_exist, 0, 0)), at(given.center, 0, n),
                at(given.scale, 0, n), at(given.matrix, t, n),
            )  # fmt: skip
    keep(all_exist)


@inner()
def _terms(size, numbers, exists, center, squared, terms):
    restrict()
    for t in range(size):
        terms[t] = _term(numbers[t], exists[t], center, squared)


@inner()
def _add_lines(size, lines, totals):
    """Add up LANES lines side by side, because in a single sum each addition waits for the one before."""
    restrict()
    for lane in range(LANES):
        totals[lane] = 0
    for t in range(size):
        for lane in range(LANES):
            totals[lane] += lines[lane * MOMENT_STEPS + t]


@inner()
def _rescale_line(size, exists, center, scale, numbers):
    restrict()
    for t in range(size):
        number = numbers[t]
        scaled = (number - center) * scale
        numbers[t] = scaled if exists[t] != 0 else number


def block_sums_env_major(first, last, arguments):
    """Add up MOMENT_STEPS steps of each env, for LANES envs at a time."""
    given = views(MaskedMatrix, arguments)
    steps, all_exist = given.matrix.steps, np.ones((1, MOMENT_STEPS), np.uint8)
    lines, totals = np.zeros((LANES, MOMENT_STEPS)), np.empty((1, LANES))
    for left in range(first, last, LANES):
        envs = min(LANES, last - left)
        for start in range(0, steps, MOMENT_STEPS):
            size = min(MOMENT_STEPS, steps - start)
            for lane in range(envs):
                n = left + lane
                _terms(
                    size, at(given.matrix, start, n), at_or(given.mask, start, n, at(all_exist, 0, 0)),
                    at(given.center, 0, n)[0], given.squared, at(lines, lane, 0),
                )  # fmt: skip
            _add_lines(size, at(lines, 0, 0), at(totals, 0, 0))
            for lane in range(envs):
                at(given.sums, start // MOMENT_STEPS, left + lane)[0] = totals[0, lane]
    keep(all_exist, lines, totals)


def rescale_env_major(first, last, arguments):
    """Rescale one env after the other."""
    given = views(MaskedMatrix, arguments)
    steps, all_exist = given.matrix.steps, np.ones((1, STEPS), np.uint8)
    for n in range(first, last):
        for t in range(0, steps, STEPS):
            _rescale_line(
                min(STEPS, steps - t), at_or(given.mask, t, n, at(all_exist, 0, 0)), at(given.center, 0, n)[0],
                at(given.scale, 0, n)[0], at(given.matrix, t, n),
            )  # fmt: skip
    keep(all_exist)
