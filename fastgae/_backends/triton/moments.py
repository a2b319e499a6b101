"""Mean and standard deviation by the definition of fastgae/_engine/moments.py, in its order of additions."""

from typing import Any

import numpy as np
import torch
import triton.language as tl

from fastgae._backends.triton.kernels import moments as kernels
from fastgae._backends.triton.kernels.step import Inputs
from fastgae._backends.triton.kernels.views import Rows, Size
from fastgae._backends.triton.matrices import Matrices
from fastgae._backends.triton.plan import blocks_of
from fastgae._call import EPS, MOMENT_STEPS, Array
from fastgae._equation.exact_sums import FORMATS, digits_of
from fastgae._interop.arrays import OnDevice

LANES, STEPS = 32, 16  # of a program that sums blocks of steps
LEVELS = 6  # of a fold
ELEMENTS = 1024  # of a program that rescales
AT_ONCE = 2**22  # numbers of which the digits are in memory together


def normalize(
    matrices: Matrices, source: Any, target: Any, mask: Any, by: str, eps: float = EPS, ddof: int = 0
) -> None:
    """Shift and scale the steps in the mask to mean 0 and standard deviation 1."""
    terms = matrices.steps * (1 if by == "per_env" else matrices.envs)
    mean = _sums(matrices, source, mask, (), by, terms)
    variance = _sums(matrices, source, mask, mean, by, terms)
    rescale(matrices, (source, target, mask, ()), mean, variance, (terms, ddof, 0.0, 0.0, eps))


def rescale(matrices: Matrices, views: Any, mean: Any, variance: Any, numbers: tuple[float, ...]) -> None:
    """Shift and scale the steps in the mask, by a variance or by a standard deviation; 0 elsewhere.

    The views are the source, the target, the mask and the standard deviations. A mean is a sum and its count. The
    numbers are how many terms a sum without a count has, ddof, the mean and the standard deviation of all, and eps.
    """
    outer, inner = (matrices.envs, matrices.steps) if matrices.env_major else (matrices.steps, matrices.envs)
    across = min(ELEMENTS, 1 << (inner - 1).bit_length())
    along = ELEMENTS // across
    programs = blocks_of(outer, along) * blocks_of(inner, across)
    arguments, constants = (views, mean, variance, matrices.steps, matrices.envs), (matrices.env_major, along, across)
    matrices.plan.launch(kernels.rescale, programs, (*arguments, *numbers), constants, warps=4)


def exact_sums(numbers: OnDevice, mask: OnDevice | None) -> tuple[Array, tuple[int, int, int, int]]:
    """Fill the bins of _equation/exact_sums.py with torch, whose sums of integers are exact in any order; then wait."""
    given = FORMATS[numbers.dtype] if numbers.dtype in FORMATS else FORMATS[np.dtype(np.float64)]
    real, bits = (torch.float32, torch.int32) if given.number_digits == 1 else (torch.float64, torch.int64)
    exists = torch.ones((), dtype=torch.bool, device=numbers.array.device) if mask is None else mask.array != 0
    flat = torch.where(exists, numbers.array.to(real), 0.0).reshape(-1)  # steps outside of the mask add 0
    bins = torch.zeros((given.digits, given.exponents), dtype=torch.int64, device=flat.device)
    infinite = flat.isinf()
    kinds = exists.expand(numbers.shape), flat.isnan(), infinite & (flat > 0), infinite & (flat < 0)
    counts = torch.stack([kind.sum() for kind in kinds])
    for some in torch.where(flat.isfinite(), flat, 0.0).split(AT_ONCE):
        exponent, digits = digits_of(some.view(bits).to(torch.int64), given)
        for column, digit in zip(bins, digits, strict=True):
            column.index_add_(0, exponent, digit)
    count, nans, positive, negative = counts.tolist()
    return bins.T.cpu().numpy(), (count, nans, positive, negative)


def _sums(matrices: Matrices, matrix: Any, mask: Any, center: Any, by: str, terms: int) -> tuple[Any, ...]:
    """Return the sum of x, or of (x - center)^2, of each env or of all, and their counts if there is a mask."""
    plan, steps, envs = matrices.plan, matrices.steps, matrices.envs
    block = min(MOMENT_STEPS, blocks_of(steps, STEPS) * STEPS)  # no turns after the last step of a short rollout
    blocks = blocks_of(steps, block)
    sums = (given and plan.scratch(blocks * envs, torch.float64) for given in (matrix, mask))
    views = tuple(each and Rows(each, envs, 1) for each in sums)
    arguments = Inputs(matrix, mask=mask), center, views, steps, envs, terms
    size = Size(*map(tl.constexpr, (LANES, STEPS, tl.float64)))
    plan.launch(kernels.block_sums, blocks_of(blocks * envs, LANES), arguments, (block, size))
    views = _folded(matrices, views, blocks, envs)
    if by == "per_env":
        return tuple(view and view._replace(step=0) for view in views)
    return tuple(view[:1] for view in _folded(matrices, views, envs, 1))


def _folded(matrices: Matrices, views: tuple[Any, ...], count: int, width: int) -> tuple[Any, ...]:
    """Return views of the sums of ``count`` rows, in new memory if there are more than one."""
    while count > 1:
        left = blocks_of(count, 2**LEVELS)
        sums = tuple(view and Rows(matrices.plan.scratch(left * width, torch.float64), width, 1) for view in views)
        matrices.plan.launch(kernels.fold, blocks_of(left * width, LANES), (views, sums, count, width), (LANES, LEVELS))
        views, count = sums, left
    return views
