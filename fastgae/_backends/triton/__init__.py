"""Tensors on a GPU, computed on that GPU: without a copy to the host, and without waiting for the GPU.

This backend never looks at the numbers of a tensor. So a wrong number, such as a flag that is neither 0 nor 1, does not
raise an error as on the CPU, but has a meaning: any flag but 0 is True. A checked call becomes a plan, which runs with
the tensors of this call, and of all calls that are alike. With TRITON_INTERPRET=1, Triton runs the kernels with NumPy,
on tensors in the memory of the CPU, so tests need no GPU.
"""

from typing import Any, cast

import triton  # first, because it is missing more often than torch, which takes longer to import

# isort: split
import torch
from triton.language import constexpr

from fastgae._backends import BackendUnavailableError
from fastgae._backends.triton.kernels import resets
from fastgae._backends.triton.kernels.step import Inputs
from fastgae._backends.triton.kernels.views import Size
from fastgae._backends.triton.matrices import Matrices
from fastgae._backends.triton.moments import exact_sums as exact_sums
from fastgae._backends.triton.moments import normalize, rescale
from fastgae._backends.triton.plan import INTERPRETED, blocks_of
from fastgae._backends.triton.recursion import LANES, REAL, STEPS, walk
from fastgae._call import NEW, NEXT_STEP, Call, GAEResult
from fastgae._interop.arrays import OnDevice, Planned

if not (INTERPRETED or torch.cuda.is_available()):
    raise BackendUnavailableError(
        "torch finds no GPU here; with TRITON_INTERPRET=1, Triton's interpreter computes on the CPU, for tests"
    )

RECURSIONS = ("gae", "n_step_returns", "retrace", "upgo")


def version() -> str:
    # Without the name of the GPU, because asking for it would start CUDA in this process.
    built_on = f"triton {triton.__version__}, torch {torch.__version__}"
    return f"{built_on}, interpreted on the CPU" if INTERPRETED else built_on


def takes(array: OnDevice) -> bool:
    """Return whether the kernels reach the memory of an array."""
    tensor = array.array
    return bool(tensor.is_cuda or (INTERPRETED and tensor.is_cpu))


def gae(call: Call) -> GAEResult:
    """Plan a checked call."""
    matrices = Matrices.of(call.rewards, call.time_axis)
    inputs = [] if call.out is None else [given for given in call if isinstance(given, OnDevice)]
    outputs = [matrices.output(wanted, inputs) for wanted in call.out or (NEW, NEW)]
    if matrices.rewards.numel():
        mask, exists = matrices.of_steps(call.mask), ()
        if call.autoreset == NEXT_STEP:
            exists = matrices.view(matrices.new(torch.uint8))
            _steps_without_resets(matrices, (call.terminated, call.truncated, call.prev_done), mask, exists)
        views = [() if output is None else matrices.view(output.matrix) for output in outputs]
        walk(call, matrices, mask, exists, *views)
        if call.normalize is not None and views[0]:
            normalize(matrices, views[0], views[0], exists or mask, call.normalize)
    return GAEResult(*map(matrices.finished, outputs))


def normalized(call: Call, moments: tuple[Any, Any] | None) -> Planned:
    """Plan to shift and scale checked advantages by their own or by given moments; 0 outside of the mask."""
    advantages, mask, (ddof, eps) = call.rewards, call.mask, call.deviation
    matrices = Matrices.of(advantages, call.time_axis)
    inputs = [each for each in (advantages, mask, *(moments or ())) if isinstance(each, OnDevice)]
    output: Any = matrices.output(call.out[0], inputs)
    if matrices.rewards.numel():
        views = matrices.of_steps(advantages), matrices.view(output.matrix), matrices.of_steps(mask)
        if moments is None:
            normalize(matrices, *views, call.normalize, eps, ddof)
        else:
            (mean, std), numbers = zip(*map(matrices.of_envs, moments), strict=True)
            rescale(matrices, (*views, std), mean and (mean, ()), (), (1, 0, *numbers, eps))
    return cast(Planned, matrices.finished(output))


def steps_without_resets(
    terminated: OnDevice, truncated: OnDevice | None, prev_done: OnDevice | None, time_axis: int
) -> Planned:
    """Plan where a step exists: the step before it ended no episode."""
    matrices = Matrices.of(terminated, time_axis)
    output: Any = matrices.output(NEW, (), torch.bool)
    if matrices.rewards.numel():
        _steps_without_resets(matrices, (terminated, truncated, prev_done), (), matrices.view(output.matrix))
    return cast(Planned, matrices.finished(output))


def _steps_without_resets(matrices: Matrices, flags: tuple[Any, Any, Any], mask: Any, exists: Any) -> None:
    terminated, truncated, prev_done = flags
    before, was_done = matrices.of_envs(prev_done)
    inputs = Inputs((), terminated=matrices.of_steps(terminated), truncated=matrices.of_steps(truncated), mask=mask)
    arguments = inputs, (before, exists), matrices.steps, matrices.envs, int(was_done)
    size = Size(*map(constexpr, (LANES, STEPS, REAL[matrices.dtype])))
    matrices.plan.launch(resets.steps_without_resets, blocks_of(matrices.envs, LANES), arguments, (size,))
