"""Mean and standard deviation by the definition of fastgae/_moments.py, in its order of additions."""

from typing import Any

import numpy as np
import torch
from triton.language import constexpr

from fastgae._backends.triton.kernels import moments as kernels
from fastgae._backends.triton.kernels.views import Rows, Size, Tiles
from fastgae._backends.triton.matrices import Matrices
from fastgae._backends.triton.plan import blocks_of
from fastgae._call import EPS, Array
from fastgae._canonical import MOMENT_STEPS
from fastgae._exact_sums import FORMATS, digits_of
from fastgae._interop import OnDevice

LANES, STEPS = 32, 16  # of a program that sums blocks of steps
ELEMENTS = 1024  # of a program that rescales
IN_ONE = 1024  # elements that the only program of ``means`` reads at once, in as many warps as it may have
WARPS = 8
AT_ONCE = 2**22  # numbers of which the digits are in memory together


def normalize(
    matrices: Matrices, source: Any, target: Any, mask: Any, by: str, eps: float = EPS, ddof: int = 0
) -> None:
    """Shift and scale the steps in the mask to mean 0 and standard deviation 1."""
    mean = _mean(matrices, source, mask, (), by)
    variance = _mean(matrices, source, mask, mean, by, ddof)
    rescale(matrices, source, target, mask, mean, variance, (), eps)


def rescale(
    matrices: Matrices,
    source: Any,
    target: Any,
    mask: Any,
    mean: Any,
    variance: Any,
    std: Any,
    eps: float,
    numbers: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Shift and scale the steps in the mask, by a variance or by a standard deviation; 0 elsewhere."""
    outer, inner = (matrices.envs, matrices.steps) if matrices.env_major else (matrices.steps, matrices.envs)
    across = min(ELEMENTS, 1 << (inner - 1).bit_length())
    along = ELEMENTS // across
    views = (_by_memory(matrices, view) for view in (source, target, mask, mean, variance, std))
    programs = blocks_of(outer, along) * blocks_of(inner, across)
    matrices.plan.launch(kernels.rescale, programs, (*views, outer, inner, *numbers, eps), (along, across), warps=4)


def exact_sums(numbers: OnDevice, mask: OnDevice | None) -> tuple[Array, tuple[int, int, int, int]]:
    """Fill the bins of fastgae/_exact_sums.py with torch, whose sums of integers are exact in any order; then wait."""
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


def _by_memory(matrices: Matrices, view: Any) -> Any:
    """Return a view with the strides of the axis that is contiguous in rewards last."""
    if not view:
        return ()
    step = 1 if isinstance(view, Tiles) else view.step
    return Rows(view.data, view.env, step) if matrices.env_major else Rows(view.data, step, view.env)


def _mean(matrices: Matrices, matrix: Any, mask: Any, center: Any, by: str, ddof: int = 0) -> Rows:
    """Return the mean of x, or of (x - center)^2, of each env or of all, in new memory."""
    plan, steps, envs = matrices.plan, matrices.steps, matrices.envs
    block = min(MOMENT_STEPS, blocks_of(steps, STEPS) * STEPS)  # no turns after the last step of a short rollout
    blocks = blocks_of(steps, block)
    sums = Rows(plan.scratch(blocks * envs, torch.float64), envs, 1)
    counts: Any = Rows(plan.scratch(blocks * envs, torch.float64), envs, 1) if mask else ()
    size = Size(constexpr(LANES), constexpr(STEPS))
    programs = blocks_of(blocks * envs, LANES)
    plan.launch(kernels.block_sums, programs, (matrix, mask, center, sums, counts, steps, envs), (block, size))
    per_env = by == "per_env"
    means = Rows(plan.scratch(envs if per_env else 1, torch.float64), 0, int(per_env and envs > 1))
    arguments = sums, counts, means, steps, blocks, envs, ddof
    plan.launch(kernels.means, 1, arguments, (per_env, IN_ONE), warps=WARPS)
    return means
