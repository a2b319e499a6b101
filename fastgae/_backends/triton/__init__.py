"""Tensors on a GPU, computed on that GPU: without a copy to the host, and without waiting for the GPU.

This backend never looks at the numbers of a tensor. So a wrong number, such as a flag that is neither 0 nor 1, does not
raise an error as on the CPU, but has a meaning: any flag but 0 is True. With TRITON_INTERPRET=1, Triton runs the
kernels with NumPy, on tensors in the memory of the CPU, so tests need no GPU.
"""

from typing import Any

import triton  # first, because it is missing more often than torch, which takes longer to import

# isort: split
import torch

from fastgae._backends import BackendUnavailableError
from fastgae._backends.triton import kernels
from fastgae._backends.triton.kernels import View
from fastgae._backends.triton.launches import LANES, STEPS, TILE_STEPS, blocks_of, launch
from fastgae._backends.triton.matrices import Matrices, Output, row_of, view_of
from fastgae._backends.triton.moments import normalize, rescale
from fastgae._call import CONSTANTS, NEW, Call, GAEResult
from fastgae._canonical import NEXT_STEP
from fastgae._interop import OnDevice

INTERPRETED: bool = triton.knobs.runtime.interpret

if not (INTERPRETED or torch.cuda.is_available()):
    raise BackendUnavailableError(
        "torch finds no GPU here; with TRITON_INTERPRET=1, Triton's interpreter computes on the CPU, for tests"
    )

RECURSIONS = ("gae", "n_step_returns", "retrace", "upgo")
REAL = {torch.float32: triton.language.float32, torch.float64: triton.language.float64}


def version() -> str:
    # Without the name of the GPU, because asking for it would start CUDA in this process.
    built_on = f"triton {triton.__version__}, torch {torch.__version__}"
    return f"{built_on}, interpreted on the CPU" if INTERPRETED else built_on


def takes(array: OnDevice) -> bool:
    """Return whether the kernels reach the memory of an array."""
    tensor = array.array
    return bool(tensor.is_cuda or (INTERPRETED and tensor.is_cpu))


def gae(call: Call) -> GAEResult:
    """Compute a checked call."""
    recursion = call.recursion
    matrices = Matrices.of(call.rewards, call.time_axis)
    inputs = [] if call.out is None else [given for given in call if isinstance(given, OnDevice)]
    outputs = [matrices.output(wanted, inputs) for wanted in call.out or (NEW, NEW)]
    if matrices.rewards.numel():
        with torch.cuda.device_of(matrices.rewards):
            fill = _n_step_returns if recursion == "n_step_returns" else _recursion
            fill(call, recursion, matrices, *outputs)
    results: list[Any] = [None if output is None else output.finished(matrices) for output in outputs]
    return GAEResult(*results)


def normalized(
    advantages: OnDevice,
    mask: OnDevice | None,
    by: str,
    given: tuple[Any, Any] | None,
    ddof: int,
    eps: float,
    time_axis: int,
    out: Any,
) -> torch.Tensor:
    """Return checked advantages, shifted and scaled by their own or by given moments; 0 outside of the mask."""
    matrices = Matrices.of(advantages, time_axis)
    inputs = [each for each in (advantages, mask, *(given or ())) if isinstance(each, OnDevice)]
    output: Any = matrices.output(out, inputs)
    if matrices.rewards.numel():
        with torch.cuda.device_of(matrices.rewards):
            output.matrix.copy_(matrices.matrix(matrices.rewards))
            exists = matrices.of_steps(mask)
            if exists is not None:
                output.matrix.masked_fill_(exists.data == 0, 0)
            if given is None:
                normalize(output.matrix, exists, by, eps, ddof)
            else:
                moments: list[Any] = [matrices.of_envs(each, torch.float64) for each in given]
                rescale(output.matrix, exists, moments[0], None, moments[1], eps)
    return output.finished(matrices)


def steps_without_resets(
    terminated: OnDevice, truncated: OnDevice | None, prev_done: OnDevice | None, time_axis: int
) -> torch.Tensor:
    """Return where a step exists: the step before it ended no episode."""
    matrices = Matrices.of(terminated, time_axis)
    exists = matrices.empty(torch.uint8)
    if exists.numel():
        with torch.cuda.device_of(exists):
            _store_steps_without_resets(matrices, terminated, truncated, prev_done, None, exists)
    return matrices.split(exists).view(torch.bool)


def _recursion(
    call: Call, recursion: str, matrices: Matrices, advantages: Output | None, returns: Output | None
) -> None:
    """Run the recursion of ``gae``, and the steps before and after it."""
    steps, envs, boundaries = matrices.steps, matrices.envs, None
    if call.cu_seqlens is not None:
        envs, boundaries = len(call.cu_seqlens.array) - 1, row_of(call.cu_seqlens.array)
    mask = exists = matrices.of_steps(call.mask)
    if call.autoreset == NEXT_STEP:
        existing = matrices.empty(torch.uint8)
        exists = view_of(existing)
        _store_steps_without_resets(matrices, call.terminated, call.truncated, call.prev_done, mask, existing)
    gammas, gamma = matrices.of_coefficients(call.gamma)
    lambdas, lambda_ = matrices.of_coefficients(call.gae_lambda)
    returns_lambdas, returns_lambda = matrices.of_coefficients(call.returns_lambda)
    constants = [getattr(call, name) or 0.0 for name in CONSTANTS]
    launch(
        kernels.recursion,
        (blocks_of(envs, LANES),),
        matrices.of_steps(call.rewards),
        *_values(call, matrices),
        matrices.of_steps(call.final_values),
        matrices.of_steps(call.terminated),
        matrices.of_steps(call.truncated),
        mask,
        exists,
        matrices.of_envs(call.last_advantages),
        matrices.of_steps(call.ratios),
        gammas,
        lambdas,
        returns_lambdas,
        boundaries,
        None if advantages is None else view_of(advantages.matrix),
        None if returns is None else view_of(returns.matrix),
        steps,
        envs,
        gamma,
        lambda_,
        returns_lambda,
        *constants,
        KIND=_kind(call, recursion),
        LEAKY=bool(call.rewards.dtype.type(call.leaky or 0.0)),
        RETURNS_RECURSION=call.returns_lambda is not None,
        CARRY_OVER=call.carry_over,
        REAL=REAL[matrices.dtype],
        **_tiling(matrices),
    )
    if call.normalize is not None and advantages is not None:
        normalize(advantages.matrix, exists, call.normalize)


def _store_steps_without_resets(
    matrices: Matrices,
    terminated: OnDevice,
    truncated: OnDevice | None,
    prev_done: OnDevice | None,
    mask: View | None,
    exists: torch.Tensor,
) -> None:
    launch(
        kernels.steps_without_resets,
        (blocks_of(matrices.envs, LANES),),
        matrices.of_steps(terminated),
        matrices.of_steps(truncated),
        matrices.of_envs(prev_done),
        mask,
        view_of(exists),
        matrices.steps,
        matrices.envs,
        **_tiling(matrices),
    )


def _tiling(matrices: Matrices) -> dict[str, Any]:
    tiles = matrices.env_major
    return {"LANES": LANES, "STEPS": TILE_STEPS if tiles else STEPS, "TILES": tiles}


def _kind(call: Call, recursion: str) -> str:
    if recursion != "gae":
        return recursion
    return "tail_normalized" if call.tail_normalized else "gae" if call.ratios is None else "vtrace"


def _values(call: Call, matrices: Matrices) -> tuple[View | None, View | None, View | None]:
    """Return V of all steps, V' of all steps if it is given, and otherwise V after the last step."""
    if call.values is None:
        return None, None, None
    values: Any = matrices.of_steps(call.values)
    last = matrices.of_envs(call.last_values)
    if len(values.data) > matrices.steps:
        last = View(values.data[-1], 0, values.env)
    return values, matrices.of_steps(call.next_values), last


def _n_step_returns(call: Call, recursion: str, matrices: Matrices, advantages: Any, returns: Any) -> None:
    gammas, gamma = matrices.of_coefficients(call.gamma)
    launch(
        kernels.n_step_returns,
        (blocks_of(matrices.envs, LANES) * matrices.steps,),
        matrices.of_steps(call.rewards),
        *_values(call, matrices),
        matrices.of_steps(call.final_values),
        matrices.of_steps(call.terminated),
        matrices.of_steps(call.truncated),
        gammas,
        view_of(returns.matrix),
        matrices.steps,
        matrices.envs,
        call.n,
        gamma,
        REAL=REAL[matrices.dtype],
        LANES=LANES,
    )
