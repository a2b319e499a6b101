"""Read a common call directly from the caller's arrays: matrices in C order, of one dtype, and no options.

The checks of _canonical take longer than computing a small rollout. This file never raises an error. It only declines a
call; _canonical then converts the arguments or raises the error.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgae._call import NEW, WORKING_DTYPES, Call, GAEResult
from fastgae._memory import empty

BOOL = np.dtype(bool)
EMPTY = {dtype: np.empty((0, 0), dtype) for dtype in (*WORKING_DTYPES, BOOL)}  # stand for arrays that are not given
IN_C_ORDER = 0x101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED: reading two flags by name takes twice as long
LARGEST = 1e38  # a larger number may overflow in float32, and NumPy would warn

Shape = tuple[int, ...]


def read(given: tuple[Any, ...]) -> tuple[tuple[Any, ...], GAEResult] | None:
    """Return the arguments of the plain kernels and the result that they will fill; None: declined."""
    call = Call(*given)
    rewards, values, terminated, truncated = call.rewards, call.values, call.terminated, call.truncated
    next_values, last_values = call.next_values, call.last_values
    if not _is_plain(call) or type(rewards) is not np.ndarray or rewards.ndim != 2 or not rewards.size:
        return None
    dtype, shape, env_major = rewards.dtype, rewards.shape, call.time_axis == 1
    envs, steps = shape if env_major else shape[::-1]
    longer = next_values is last_values is None
    longer_shape = (envs, steps + 1) if env_major else (steps + 1, envs)
    if not (
        dtype in WORKING_DTYPES
        and _is_in_c_order(rewards, dtype, shape)
        and _is_in_c_order(values, dtype, longer_shape if longer else shape)
        and ((terminated is truncated is None and last_values is not None) or _is_in_c_order(terminated, BOOL, shape))
        and (truncated is None or (next_values is not None and _is_in_c_order(truncated, BOOL, shape)))
        and (next_values is None or (last_values is None and _is_in_c_order(next_values, dtype, shape)))
        and (last_values is None or _is_number(last_values) or _is_in_c_order(last_values, dtype, (envs,)))
        # An extra value after a single step would put the values of two envs two elements apart.
        and not (env_major and steps == 1)
    ):
        return None
    inputs = [
        array
        for array in (rewards, values, terminated, truncated, next_values, last_values)
        if type(array) is np.ndarray
    ]
    result = _result(call.out, dtype, shape, inputs)
    if result is None:
        return None
    if terminated is None:  # one row of flags stands for all rows, but a kernel of one env reads a flag for each step
        terminated = np.broadcast_to(np.zeros(shape if envs == 1 else shape[1], bool), shape)
    if env_major:
        rewards, values, terminated, truncated, next_values, advantages, returns = (
            None if array is None else array.T
            for array in (rewards, values, terminated, truncated, next_values, *result)
        )
    else:
        advantages, returns = result
    following = values[1:] if next_values is None else next_values
    if last_values is None:
        last_values = following[steps - 1]
    elif type(last_values) is not np.ndarray:
        last_values = np.full(envs, last_values, dtype)
    nothing = EMPTY[dtype]
    arguments = (  # in the order of Plain
        rewards,
        values,
        following,
        last_values,
        nothing,
        terminated,
        EMPTY[BOOL] if truncated is None else truncated,
        call.gamma,
        call.gamma * call.gae_lambda,
        nothing if advantages is None else advantages,
        nothing if returns is None else returns,
    )
    return arguments, result


def _is_plain(call: Call) -> bool:
    """Return whether the call has none of the arguments that this file does not read."""
    return (
        call.final_values is call.autoreset is call.last_advantages is call.prev_done is call.mask is None
        and call.returns_lambda is call.normalize is call.cu_seqlens is call.n is None
        and call.ratios is call.rho_clip is call.c_clip is call.advantage_clip is call.leaky is None
        and call.tail_normalized is call.carry_over is False
        and call.recursion == "gae"
        and type(call.time_axis) is int
        and 0 <= call.time_axis <= 1
        and type(call.gamma) is type(call.gae_lambda) is float
        and 0 <= call.gamma <= 1
        and 0 <= call.gae_lambda <= 1
    )


def _is_number(given: Any) -> bool:
    """Return whether this is a number of Python, which has no effect on the dtype of the results.

    NumPy reads an integer of more than 64 bits as an object, which is an error.
    """
    return (type(given) is float and -LARGEST < given < LARGEST) or (type(given) is int and given.bit_length() < 64)


def _is_in_c_order(array: Any, dtype: np.dtype[Any], shape: Shape) -> bool:
    return (
        type(array) is np.ndarray
        and array.dtype == dtype
        and array.shape == shape
        and array.flags.num & IN_C_ORDER == IN_C_ORDER
    )


def _result(out: Any, dtype: np.dtype[Any], shape: Shape, inputs: Sequence[Any]) -> GAEResult | None:
    """Return the arrays to fill; None: ``out`` may overlap an input, or its arrays are not like the results."""
    if out is None:
        return GAEResult(empty(shape, dtype, "C"), empty(shape, dtype, "C"))
    if not isinstance(out, tuple) or len(out) != 2 or out[0] is out[1]:
        return None
    others = [*inputs]
    for array in out:
        if array is None or array is NEW:
            continue
        if not _is_in_c_order(array, dtype, shape) or not array.flags.writeable:
            return None
        for other in others:
            if np.may_share_memory(array, other):
                return None
        others.append(array)
    return GAEResult(*(empty(shape, dtype, "C") if array is NEW else array for array in out))
