"""Compute mean and standard deviation with the same bits on every backend, number of threads and memory layout.

Each env is summed in float64 over blocks of MOMENT_STEPS steps, in the order of time. Then the sums of the blocks, and
after them the sums of the envs, are added up in a fixed tree.
"""

import numpy as np

from fastgae._backends import Backend
from fastgae._call import EPS, Array
from fastgae._canonical.memory import Layout
from fastgae._equation.arrays import tree_sum


def center_and_scale(
    matrix: Array,
    mask: Array | None,
    by: str,
    layout: Layout,
    module: Backend,
    num_threads: int,
    target: str | None,
    eps: float = EPS,
    ddof: int = 0,
) -> tuple[Array, Array]:
    """Return the mean and 1 / (std + eps) of each env over the steps that exist."""
    steps, envs = matrix.shape
    counts = np.full(envs, steps) if mask is None else np.count_nonzero(mask, axis=0)
    how = (num_threads, target)
    with np.errstate(all="ignore"):  # NaN and infinity are data here, and an env may have no steps
        mean = _mean(module.block_sums(matrix, mask, None, *how), counts, by, layout)
        variance = _mean(module.block_sums(matrix, mask, mean, *how), counts, by, layout, ddof)
        return mean, scale_of(np.sqrt(variance), eps)


def scale_of(std: Array, eps: float) -> Array:
    """Return the factor that scales numbers with this standard deviation to standard deviation 1."""
    with np.errstate(all="ignore"):  # if both are 0, the factor is infinite
        scale: Array = 1.0 / (std + eps)
        return scale


def _mean(sums: Array, counts: Array, by: str, layout: Layout, ddof: int = 0) -> Array:
    """Return (N,): sum / (count - ddof) of each env, or, for every env, the quotient over all envs."""
    total = tree_sum(np, sums)
    if by == "global":
        total, counts = tree_sum(np, layout.in_caller_order(total)), counts.sum()
    return np.full(sums.shape[1], total / np.where(counts > ddof, counts - ddof, np.nan))  # NaN: too few steps
