"""Make the arguments of a kernel, which kernel.py describes, of a checked call."""

import math
from collections import namedtuple
from inspect import signature
from typing import Any

import numpy as np

from fastgae._backends.numba.kernel import ENVS, LANES, LEAKY, time_major
from fastgae._call import ABSENT, CONSTANTS, ROLES, Array, Call, Role

Arguments = namedtuple("Arguments", list(signature(time_major).parameters)[2:])  # type: ignore[misc]
# The places in ``Call`` of the numbers per step that a kernel takes in this order, as None if they are not given.
PER_STEP = [
    place
    for place, name in enumerate(Call._fields)
    if ROLES[name] is Role.STEPS and name in {*Arguments._fields} - {"rewards", "values", "final_values"}
]
FLAG = np.dtype(np.uint8)  # because flags may have any byte, and Numba reads one bit of a bool

# Fewer steps are computed as fast as they are. Xeon, AVX-512, whole calls with both results, one recursion and pieces:
# 41 and 46 us for 6144 float32 steps, 52 and 48 for 8192, 71 and 51 for 12288, 304 and 102 for 65536.
FEWEST_STEPS = 12 * 1024
# A recursion forgets its start in about the steps in which its mantissa vanishes. Of 150 random trajectories of 40000
# float32 steps each, all pieces were right in 97 % with 1.3 times as many steps, and in 100 % with 1.6.
MARGIN = 1.6


def is_env_major(matrix: Array) -> bool:
    return matrix.shape[1] == 1 or matrix.strides[1] != matrix.itemsize


def flat(matrix: Array, env_major: bool) -> Array:
    """Return a matrix as one array, in the order of its memory; a copy if that has gaps."""
    return (matrix.T if env_major else matrix).ravel()


def flags(given: Any, env_major: bool) -> Any:
    """Return flags as one array of bytes; None if they are not given."""
    return flat(given, env_major).view(FLAG) if isinstance(given, np.ndarray) else None


def arguments_of(call: Call, env_major: bool) -> Any:
    """Return the arguments of a call as ``in_one_layout`` makes it."""
    (steps, envs), dtype, last, final = call.rewards.shape, call.rewards.dtype, call.last_values, call.final_values
    rewards, mask = flat(call.rewards, env_major), flags(call.mask, env_major)
    terminated = flags(call.terminated, env_major)
    if terminated is None:
        terminated = np.zeros(rewards.size, FLAG)
    apart, shift = (steps, 1) if env_major else (envs, envs)
    values_apart = following_apart = apart
    if call.values is ABSENT:  # where gamma V' is -0.0, r + gamma V' - 0.0 is r, bit for bit
        values, following, shift = dtype.type(0.0), -np.copysign(dtype.type(0.0), call.gamma), 0
        if following.ndim:
            following = flat(np.broadcast_to(following.astype(dtype), call.rewards.shape), env_major)
    else:
        values = following = flat(call.values, env_major)
        if env_major:
            values_apart = following_apart = len(call.values)
        if call.next_values is not None:
            following, following_apart, shift = flat(call.next_values, env_major), apart, 0
    gamma, gamma_lambda, second_lambda = _coefficients(call, env_major)
    is_plain = mask is final is second_lambda is call.ratios is None
    advantages, returns = [np.empty(2 * ENVS, dtype) if array is None else flat(array, env_major) for array in call.out]
    return Arguments(  # type: ignore[call-arg]
        steps, apart, values_apart, following_apart, 0, steps if last is None else steps - 1, shift,
        mask is not None and shift > 0, final is not None, call.out[0] is not None,
        call.out[1] is not None, following, rewards if last is None else last,
        np.zeros(envs, dtype) if call.last_advantages is None else call.last_advantages,
        rewards if final is None else flat(final, env_major), is_plain or None, rewards, values, terminated,
        terminated if call.truncated is None else flags(call.truncated, env_major), gamma, gamma_lambda,
        mask, second_lambda, True if call.tail_normalized else None,
        *[None if call[place] is None else flat(call[place], env_major) for place in PER_STEP], _constants(call, dtype),
        call.carry_over, advantages, returns,
    )  # fmt: skip


def _coefficients(call: Call, env_major: bool) -> tuple[Any, ...]:
    """Return gamma, gamma lambda and the decay of a second recursion, if there is one: all arrays if one is."""
    second = call.gae_lambda if call.tail_normalized else call.returns_lambda
    if second is not None and not call.tail_normalized:
        second = _discounted(call.gamma, second)
    gamma, gamma_lambda, number = call.gamma, _discounted(call.gamma, call.gae_lambda), call.rewards.dtype.type
    if not (isinstance(gamma, np.ndarray) or isinstance(gamma_lambda, np.ndarray) or isinstance(second, np.ndarray)):
        return number(gamma), number(gamma_lambda), None if second is None else number(second)
    shape, given = call.rewards.shape, (gamma, gamma_lambda, second)
    arrays = [None if each is None else np.asarray(each).astype(number) for each in given]
    if not env_major and all(each is None or each.shape in ((), (shape[0], 1)) for each in arrays):
        return tuple(None if each is None else np.full((shape[0], 1), each.reshape(-1, 1)) for each in arrays)
    return tuple(None if each is None else flat(np.broadcast_to(each, shape), env_major) for each in arrays)


def _discounted(gamma: Any, decay: Any) -> Any:
    """Return gamma times a decay. A gamma of 1 changes no number, so the decays of ``reverse_scan`` are not copied."""
    return decay if type(gamma) is float and gamma == 1.0 else gamma * decay


def _constants(call: Call, dtype: np.dtype[Any]) -> Array | None:
    if call.ratios is None:
        return None
    # A clip beyond the working dtype becomes infinity, which clips nothing.
    constants = np.array([*(getattr(call, name) for name in CONSTANTS), 1.0]).astype(dtype)
    constants[-1] -= constants[LEAKY]
    return constants


def cut(given: Any) -> tuple[Any, Any, Array] | None:
    """Cut a trajectory without options into LANES pieces, which are computed as if they were envs; None: too short.

    A piece does not know the advantage that follows its last step. So it begins some steps later, with A = 0, and
    forgets this start by the time it reaches its own steps. Return the arguments for the steps in which pieces forget,
    the arguments for all of their steps, and A where each piece but the first begins. If A has the same bits after
    both, the results are the sequential ones, because the same operations were applied to the same numbers.
    """
    has_options = not (given.mask is given.second_lambda is given.ratios is None)
    if has_options or isinstance(given.gamma_lambda, np.ndarray) or isinstance(given.following, np.floating):
        return None
    forgotten = -math.log2(max(given.gamma_lambda, 0.5))  # bits per step
    warm_up = int(MARGIN * (np.finfo(given.rewards.dtype).nmant + 1) / max(forgotten, 1e-9)) + 1
    length = (given.steps - warm_up) // LANES  # of a piece
    overlap = given.steps - LANES * length  # the warm-up, and the few steps that do not divide among the pieces
    if length < overlap:
        return None
    if not given.keeps_advantages:
        given = given._replace(advantages=np.empty_like(given.rewards), keeps_advantages=True)
    begin = given.advantages[length : LANES * length : length]
    return _pieces(given, length, length, overlap), _pieces(given, length, 0, length + overlap), begin


def _pieces(given: Any, apart: int, start: int, count: int) -> Any:
    """Return the arguments for ``count`` steps of every piece. Each overwrites what the one before wrote too much."""
    last = start + count - 1 + given.shift
    after = given.following[-1:] if given.known == given.steps else given.last_values
    return given._replace(
        steps=count, apart=apart, values_apart=apart, following_apart=apart, start=start, known=count - 1,
        last_values=np.append(given.following[last : last + (LANES - 1) * apart : apart], after),
        last_advantages=np.append(np.zeros(LANES - 1, after.dtype), given.last_advantages),
    )  # fmt: skip
