"""Add up the sums that normalisation needs, and rescale: in float64, in the order of the reference."""

import numpy as np

from fastgae._backends.numba.compiled import at, inner, no_overlap
from fastgae._backends.numba.kernel import LANES, U
from fastgae._call import MOMENT_STEPS


@inner
def _term(i, n, numbers, mask, center, squared):
    """Return what a step adds. One that does not exist adds 0: the sum is never -0, so that changes no bit."""
    term = numbers[i] - at(center, n)
    term = term * term if squared else term
    return term if mask is None or mask[i] != 0 else 0.0


@no_overlap
def _add_row(i, n, s, size, numbers, mask, center, squared, sums):
    i, n, s = U(i), U(n), U(s)
    for k in range(U(size)):
        sums[s + k] += _term(i + k, n + k, numbers, mask, center, squared)


@no_overlap
def _rescale(i, n, size, mask, center, scale, numbers):
    i, n = U(i), U(n)
    for k in range(U(size)):
        number = numbers[i + k]
        scaled = (number - at(center, n + k)) * at(scale, n + k)
        numbers[i + k] = scaled if mask is None or mask[i + k] != 0 else number


def block_sums_time_major(first, last, steps, envs, numbers, mask, center, squared, sums):
    """Add up MOMENT_STEPS steps of each env, row by row."""
    for t in range(steps):
        i, s = t * envs + first, t // MOMENT_STEPS * envs + first
        _add_row(i, first, s, last - first, numbers, mask, center, squared, sums)


def rescale_time_major(first, last, steps, envs, mask, center, scale, numbers):
    """Rescale row by row."""
    for t in range(steps):
        _rescale(t * envs + first, first, last - first, mask, center, scale, numbers)


def block_sums_env_major(first, last, steps, envs, numbers, mask, center, squared, sums):
    """Add up MOMENT_STEPS steps of LANES envs side by side, because in a sum each addition waits for the last one."""
    totals = np.empty(LANES)
    for left in range(first, last, LANES):
        for start in range(0, steps, MOMENT_STEPS):
            totals[:] = 0
            for t in range(start, min(start + MOMENT_STEPS, steps)):
                for lane in range(LANES):
                    n = U(min(left + lane, last - 1))  # the same one again if there are no more envs
                    totals[lane] += _term(n * U(steps) + U(t), n, numbers, mask, center, squared)
            for lane in range(min(LANES, last - left)):
                sums[start // MOMENT_STEPS * envs + left + lane] = totals[lane]


def rescale_env_major(first, last, steps, envs, mask, center, scale, numbers):
    """Rescale one env after the other."""
    for n in range(first, last):
        _rescale(n * steps, n, steps, mask, center[n], scale[n], numbers)
