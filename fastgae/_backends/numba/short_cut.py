"""Recognise a call that the checks of _canonical would not change: they take longer than computing a small rollout.

This file never raises an error, and means nothing by itself. What it does not recognise goes through the checks.
"""

from operator import is_, itemgetter
from typing import Any

import numpy as np

from fastgae import _memory
from fastgae._call import NEW, WORKING_DTYPES, Array, Call, GAEResult
from fastgae._canonical import CanonicalRollout

READ = (
    "rewards", "values", "terminated", "truncated", "last_values", "next_values", "gamma", "gae_lambda", "time_axis",
    "out",
)  # fmt: skip
_read = itemgetter(*[Call._fields.index(name) for name in READ])
_others = itemgetter(*[place for place, name in enumerate(Call._fields) if name not in READ])
DEFAULTS = tuple(default for name, default in Call._field_defaults.items() if name not in READ)
BOOL = np.dtype(bool)
IN_C_ORDER = 0x101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED: reading two flags by name takes twice as long
LARGEST = 2**63  # NumPy reads larger integers as objects
EMPTY = {dtype: np.empty((0, 0), dtype) for dtype in (*WORKING_DTYPES, BOOL)}  # stand for arrays that are not given


def recognised(given: tuple[Any, ...]) -> tuple[CanonicalRollout, GAEResult] | None:
    """Return the kernel's arguments of a plain call in C order, and the arrays that it fills; None: declined."""
    call = Call(*given)
    rewards, values, terminated, truncated, last_values, next_values, gamma, gae_lambda, time_axis, out = _read(call)
    if not (
        type(rewards) is np.ndarray
        and rewards.ndim == 2
        and rewards.size
        and type(time_axis) is int
        and type(gamma) is type(gae_lambda) is float
        and 0 <= gamma <= 1
        and 0 <= gae_lambda <= 1
        and all(map(is_, _others(call), DEFAULTS))
    ):
        return None
    dtype, shape = rewards.dtype, rewards.shape
    if time_axis == 0:
        (steps, envs), longer = shape, (shape[0] + 1, shape[1])
    else:
        (envs, steps), longer = shape, (shape[0], shape[1] + 1)
    if terminated is truncated is None and last_values is not None:
        # One row of flags stands for all rows, but a kernel of one env reads a flag for each step.
        terminated = np.broadcast_to(np.zeros(shape if envs == 1 else shape[1], bool), shape)
    elif not _is(terminated, BOOL, shape):
        return None
    if type(last_values) in (float, int) and -LARGEST < last_values < LARGEST:
        last_values = np.full(envs, last_values, dtype)
    bootstrapped = last_values if next_values is None else next_values
    if not (
        dtype in WORKING_DTYPES
        # The values of two envs lie two elements apart if an extra one follows a single step.
        and (time_axis == 0 or (time_axis == 1 and steps > 1))
        and _is(rewards, dtype, shape)
        and _is(values, dtype, longer if bootstrapped is None else shape)
        and (truncated is None or (next_values is not None and _is(truncated, BOOL, shape)))
        and (bootstrapped is None or _is(bootstrapped, dtype, (envs,) if next_values is None else shape))
        and (next_values is None or last_values is None)
    ):
        return None
    result = _result(out, dtype, shape, (rewards, values, terminated, truncated, bootstrapped))
    if result is None:
        return None
    absent = EMPTY[dtype]
    advantages, returns = [absent if array is None else array for array in result]
    truncated = EMPTY[BOOL] if truncated is None else truncated
    if time_axis:
        rewards, values, terminated, truncated = rewards.T, values.T, terminated.T, truncated.T
        advantages, returns = advantages.T, returns.T
        next_values = None if next_values is None else next_values.T
    following = values[1:] if next_values is None else next_values
    if last_values is None:
        last_values = following[steps - 1]
    return CanonicalRollout(
        rewards, values, following, last_values, absent, terminated, truncated, dtype.type(gamma),
        dtype.type(gamma * gae_lambda), advantages, returns,
    ), result  # fmt: skip


def _is(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    return (
        type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == shape
        and array.flags.num & IN_C_ORDER == IN_C_ORDER
    )


def _result(
    out: Any, dtype: np.dtype[Any], shape: tuple[int, ...], inputs: tuple[Array | None, ...]
) -> GAEResult | None:
    """Return the arrays to fill; None: ``out`` may overlap an input, or its arrays are not like the results."""
    if out is None:
        return GAEResult(_memory.empty(shape, dtype, "C"), _memory.empty(shape, dtype, "C"))
    if type(out) is not tuple or len(out) != 2 or out[0] is out[1] is None:
        return None
    others = [array for array in inputs if array is not None]
    for array in out:
        if array is None or array is NEW:
            continue
        if not (_is(array, dtype, shape) and array.flags.writeable):
            return None
        for other in others:
            if np.may_share_memory(array, other):
                return None
        others.append(array)
    return GAEResult(*[_memory.empty(shape, dtype, "C") if array is NEW else array for array in out])
