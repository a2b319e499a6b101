"""Mean and standard deviation by the definition of fastgae/_moments.py, in its order of additions."""

import math
from typing import Any

import torch

from fastgae._backends.triton import kernels
from fastgae._backends.triton.kernels import View
from fastgae._backends.triton.launches import LANES, STEPS, blocks_of, launch
from fastgae._backends.triton.matrices import row_of, view_of
from fastgae._call import EPS
from fastgae._canonical import MOMENT_STEPS


def normalize(matrix: torch.Tensor, mask: View | None, by: str, eps: float = EPS, ddof: int = 0) -> None:
    """Shift and scale the steps in the mask to mean 0 and standard deviation 1, in place."""
    counts = _counts(matrix, mask)
    mean = _mean(_block_sums(matrix, mask, None), counts, by)
    variance = _mean(_block_sums(matrix, mask, mean), counts, by, ddof)
    rescale(matrix, mask, row_of(mean), row_of(variance), None, eps)


def rescale(
    matrix: torch.Tensor, mask: View | None, mean: View, variance: View | None, std: View | None, eps: float
) -> None:
    """Shift and scale the steps in the mask, in place, by a variance or by a standard deviation."""
    steps, envs = matrix.shape
    launch(
        kernels.rescale,
        (blocks_of(envs, LANES) * blocks_of(steps, STEPS),),
        view_of(matrix),
        mask,
        mean,
        variance,
        std,
        steps,
        envs,
        eps,
        LANES=LANES,
        STEPS=STEPS,
    )


def _counts(matrix: torch.Tensor, mask: View | None) -> torch.Tensor:
    """Return the number of steps of each env that exist, as float64."""
    steps, envs = matrix.shape
    if mask is None:
        return matrix.new_full((envs,), steps, dtype=torch.float64)
    return (mask.data != 0).sum(0).to(torch.float64)


def _block_sums(matrix: torch.Tensor, mask: View | None, center: torch.Tensor | None) -> torch.Tensor:
    """Return (blocks, N) float64 sums of x, or of (x - center)^2, each over MOMENT_STEPS steps."""
    steps, envs = matrix.shape
    blocks = blocks_of(steps, MOMENT_STEPS)
    sums = matrix.new_empty((blocks, envs), dtype=torch.float64)
    launch(
        kernels.block_sums,
        (blocks_of(envs, LANES) * blocks,),
        view_of(matrix),
        mask,
        None if center is None else row_of(center),
        view_of(sums),
        steps,
        envs,
        LANES=LANES,
        BLOCK=MOMENT_STEPS,
        STEPS=STEPS,
    )
    return sums


def _mean(sums: torch.Tensor, counts: torch.Tensor, by: str, ddof: int = 0) -> torch.Tensor:
    """Return (N,): sum / (count - ddof) of each env, or, for every env, the quotient over all envs."""
    per_env = _tree(sums)
    if by == "per_env":
        return per_env / _divisor(counts, ddof)
    return (_tree(per_env) / _divisor(counts.sum(), ddof)).expand(len(counts)).contiguous()


def _divisor(counts: torch.Tensor, ddof: int) -> torch.Tensor:
    """Return counts - ddof, or NaN if there are too few steps."""
    return torch.where(counts > ddof, (counts - ddof).double(), math.nan)


def _tree(terms: torch.Tensor) -> Any:
    """Return the sum along the first axis: add one half to the other, again and again."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = torch.cat([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    return terms[0]
