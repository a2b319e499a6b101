"""Mean 0 and standard deviation 1, the same bits on every backend, number of threads and memory layout.

Sums are of float64, one for each env and block of MOMENT_STEPS steps, in the order of time. The sums of the blocks, and
then those of the envs, are added up in a fixed tree.
"""

from types import ModuleType

import numpy as np

from fastgae._canonical import Array, Layout

EPS = 1e-8


def center_and_scale(
    matrix: Array,
    mask: Array | None,
    by: str,
    layout: Layout,
    module: ModuleType,
    num_threads: int,
    target: str | None,
    eps: float = EPS,
) -> tuple[Array, Array]:
    """Return the mean and 1 / (std + eps) of each env, the population's std, over the steps that exist."""
    steps, envs = matrix.shape
    counts = np.full(envs, steps) if mask is None else np.count_nonzero(mask, axis=0)
    how = (num_threads, target)
    with np.errstate(all="ignore"):  # NaN and infinity are data here, and an env may have no steps
        mean = _mean(module.block_sums(matrix, mask, None, *how), counts, by, layout)
        variance = _mean(module.block_sums(matrix, mask, mean, *how), counts, by, layout)
        return mean, 1.0 / (np.sqrt(variance) + eps)


def _mean(sums: Array, counts: Array, by: str, layout: Layout) -> Array:
    """(N,): the mean of each env, or that of all for every env."""
    per_env = _tree(sums)
    if by == "per_env":
        return per_env / counts
    return np.full(len(counts), _tree(layout.in_caller_order(per_env)) / counts.sum())


def _tree(terms: Array) -> Array:
    """The sum along the first axis: of its halves, again and again."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Array = terms[0]
    return total
