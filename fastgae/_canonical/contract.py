"""The input of every backend, and how it is made of a call."""

from operator import is_
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import ABSENT, CONSTANTS, Array, Call

Scalar = np.floating[Any]

# normalize adds up this many steps one after the other. Do not tune it, because the bits of a sum depend on it.
MOMENT_STEPS = 128


class CanonicalRollout(NamedTuple):
    """A rollout as (T, N) views of one dtype, aligned, in native byte order, and all in one layout.

    Time-major views have unit stride along N, and env-major ones along T. The other stride is free: negative or zero
    where the caller's array had it so. Arrays of coefficients may also have stride 0 along the unit axis. The outputs
    overlap no input.
    """

    rewards: Array
    values: Array
    next_values: Array  # (T - 1, N): V' of all steps but the last; often a view of values
    last_values: Array  # (N,): V' of the last step
    final_values: Array | None  # V' where truncated; undefined elsewhere
    terminated: Array
    truncated: Any  # an array, or None; always an array if there are final_values
    gamma: Scalar | Array
    gamma_lambda: Scalar | Array
    advantages: Any  # an array to fill, or None
    returns: Any  # an array to fill, or None
    returns_gamma_lambda: Scalar | Array | None = None  # for a second recursion, from which the returns come
    tail_lambda: Scalar | Array | None = None  # tail-normalized: the lambda of D_t = 1 + lambda D_{t+1}
    mask: Array | None = None  # False where a step does not exist: it is skipped, A = 0 and R = V there
    mask_passes_values: bool = False  # V' of a step before skipped steps is V of the next step that exists
    carry_over: bool = False  # a skipped step gets A of the next step that exists, and R = A + V
    last_advantages: Array | None = None  # (N,): A_T
    ratios: Any = None  # V-trace: importance ratios
    constants: tuple[Scalar, ...] | None = None  # V-trace: the constants that ``CONSTANTS`` in fastgae/_call.py lists

    @property
    def is_plain(self) -> bool:
        """Return whether the rollout has no options, and its coefficients are numbers."""
        numbers = not (isinstance(self.gamma, np.ndarray) or isinstance(self.gamma_lambda, np.ndarray))
        return numbers and all(map(is_, self[-len(NO_OPTIONS) :], NO_OPTIONS))


NO_OPTIONS = tuple(CanonicalRollout._field_defaults.values())


def canonical_rollout(call: Call) -> CanonicalRollout:
    """Return the CanonicalRollout of a call from ``in_one_layout``."""
    values, following, last = call.values, call.next_values, call.last_values
    (steps, envs), dtype = call.rewards.shape, call.rewards.dtype
    env_major = envs == 1 or call.rewards.strides[1] != dtype.itemsize

    def constant(number: Any) -> Array:
        """Return a (T, N) matrix of one number, which takes the memory of one row or column."""
        return np.broadcast_to(np.full((steps, 1) if env_major else (1, envs), number), (steps, envs))

    def coefficient(given: Any) -> Any:
        """Round float64 once, to the working dtype, and broadcast it."""
        if not isinstance(given, np.ndarray):
            return dtype.type(given)
        matrix = np.broadcast_to(given.astype(dtype, copy=False), (steps, envs))
        fits = matrix.strides[0 if env_major else 1] in (0, matrix.itemsize) and matrix.flags.aligned
        return matrix if fits else np.array(matrix, order="F" if env_major else "C")

    if values is ABSENT:  # r - 0.0 and r + gamma (-0.0) are r, bit for bit
        values, following = constant(dtype.type(0.0)), constant(dtype.type(-0.0))
    if following is None:
        following = values[1:]
    if last is None:
        last = following[steps - 1] if steps else np.empty(envs, dtype)
    return CanonicalRollout(
        call.rewards,
        values[:steps],
        following[: max(steps - 1, 0)],
        last,
        call.final_values,
        call.terminated if isinstance(call.terminated, np.ndarray) else constant(np.False_),
        call.truncated,
        coefficient(call.gamma),
        coefficient(_discounted(call, call.gae_lambda)),
        call.out[0],
        call.out[1],
        returns_gamma_lambda=None
        if call.returns_lambda is None
        else coefficient(_discounted(call, call.returns_lambda)),
        tail_lambda=coefficient(call.gae_lambda) if call.tail_normalized else None,
        mask=call.mask,
        mask_passes_values=call.mask is not None and call.next_values is None,
        carry_over=call.carry_over and call.mask is not None,
        last_advantages=call.last_advantages,
        ratios=call.ratios,
        constants=None if call.ratios is None else _constants(call, dtype),
    )


def _discounted(call: Call, decay: Any) -> Any:
    """Return gamma times a decay. A gamma of 1 changes no number, so the decays of ``reverse_scan`` are not copied."""
    if type(call.gamma) is float and (call.gamma == 1.0 or type(decay) is float):
        return decay if call.gamma == 1.0 else call.gamma * decay
    with np.errstate(all="ignore"):  # the decays of other estimators may be NaN or infinite
        return call.gamma * decay


def _constants(call: Call, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    with np.errstate(over="ignore"):  # a clip beyond the working dtype becomes infinity, which clips nothing
        return tuple(dtype.type(getattr(call, name)) for name in CONSTANTS)
