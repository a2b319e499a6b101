"""JAX arrays, computed by the program that JAX compiles: for a GPU or a TPU, and for gradients on any device.

The recursion is written in ``jax.numpy`` and ``jax.lax``, so JAX can batch, differentiate and place it. On a CPU it has
the bits of the other backends. XLA would compute a product and a sum with one rounding, so a select stands between
them: it chooses the product where a gate is open, and where there is no gate, it chooses by a condition that XLA cannot
know. Like ``triton``, this backend never looks at the numbers: a wrong number has a meaning and raises no error.

Arrays have time as their first axis in here.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fastgae._call import EPS, Call, GAEResult
from fastgae._canonical import MOMENT_STEPS, NEXT_STEP
from fastgae._interop import OnDevice
from fastgae._interop.jax import canonical, numpys_dtypes

FLAG = np.dtype(bool)
RECURSIONS = ("gae", "n_step_returns", "retrace", "upgo")
UNROLLED = 16  # steps in one iteration of a loop, because each iteration costs a GPU or a TPU some microseconds


def version() -> str:
    return f"jax {jax.__version__}"


def takes(array: OnDevice) -> bool:
    return isinstance(array.array, jax.Array)


def gae(call: Call) -> GAEResult[Any]:
    """Compute a checked call. ``out`` is never given, because JAX arrays never change."""
    if call.cu_seqlens is not None:
        call = _one_env(call)
    axis, dtype = call.time_axis, canonical(call.rewards.dtype)
    reward = _steps(dtype, axis, call.rewards)
    shape = reward.shape[1:]
    terminated, truncated, exists = (_steps(FLAG, axis, each) for each in (call.terminated, call.truncated, call.mask))
    ends = _either(terminated, truncated)
    values, following = _values(call, reward, truncated, exists)
    if call.autoreset == NEXT_STEP:
        exists = _without_resets(ends, _envs(FLAG, shape, call.prev_done), exists)
    here = _open(exists, None)
    bootstrap = _open(exists, terminated)
    if values is None and following is not None:  # of rewards alone, only final values are known
        bootstrap &= truncated
    gamma, gae_lambda = _coefficient(axis, call.gamma), _coefficient(axis, call.gae_lambda)
    one_step = reward if following is None else _plus(bootstrap, jnp.asarray(gamma, dtype), following, reward)
    if call.recursion == "n_step_returns":
        returns = _n_step_returns(reward, one_step, _open(None, ends), jnp.asarray(gamma, dtype), call.n)
        return GAEResult(None, jnp.moveaxis(returns, 0, axis))
    deltas = one_step if values is None else one_step - values
    if call.recursion == "upgo":
        ends = _either(ends, _next_existing(~(deltas >= 0), jnp.ones(shape, bool), exists))
    trace = _open(exists, ends)
    if call.recursion == "retrace":
        gae_lambda = _traces_of_next(_steps(dtype, axis, call.ratios), gae_lambda, trace, exists)
        call = call._replace(ratios=None)
    decay, zero = _rounded_product(dtype, gamma, gae_lambda), jnp.zeros(shape, dtype)
    scan = functools.partial(_scan, trace=trace, exists=exists)
    if call.tail_normalized:  # A = G / D;  G = D delta + gamma lambda G_next;  D = 1 + lambda D_next
        left = scan(jnp.ones_like(deltas), jnp.asarray(gae_lambda, dtype), zero)
        advantages = scan(_times(here, left, deltas), decay, zero) / left
    elif call.ratios is not None:  # A = rho delta + gamma lambda c A_next
        weights = functools.partial(_weights, _steps(dtype, axis, call.ratios), leaky=call.leaky)
        weighted = _times(here, weights(call.rho_clip), deltas)
        advantages = scan(weighted, _times(trace, weights(call.c_clip), decay), zero)
    else:
        last = _envs(dtype, shape, call.last_advantages)
        advantages = scan(deltas, decay, zero if last is None else last)
    traced = advantages
    if call.returns_lambda is not None:
        traced = scan(deltas, _rounded_product(dtype, gamma, _coefficient(axis, call.returns_lambda)), zero)
    returns = None if values is None else traced + values
    if call.ratios is not None:
        after = jnp.concatenate([advantages[1:], zero[np.newaxis]])[: len(reward)]
        advantages = _times(here, weights(call.advantage_clip), _plus(trace, decay, after, deltas))
    if exists is not None and not call.carry_over:
        advantages = jnp.where(exists, advantages, 0)
        returns = returns if values is None else jnp.where(exists, returns, values)
    if call.normalize is not None:
        advantages = _normalized(advantages, exists, call.normalize, None, 0, EPS, axis)
    return GAEResult(*(None if each is None else jnp.moveaxis(each, 0, axis) for each in (advantages, returns)))


def normalized(
    advantages: OnDevice,
    mask: OnDevice | None,
    by: str,
    given: tuple[Any, Any] | None,
    ddof: int,
    eps: float,
    time_axis: int,
    out: Any,
) -> jax.Array:
    """Return checked advantages, shifted and scaled by their own or by given moments; 0 outside of the mask."""
    matrix = _steps(advantages.dtype, time_axis, advantages)
    exists = _steps(FLAG, time_axis, mask)
    if exists is not None:
        matrix = jnp.where(exists, matrix, 0)
    moments = None if given is None else tuple(_envs(np.dtype(np.float64), matrix.shape[1:], each) for each in given)
    return jnp.moveaxis(_normalized(matrix, exists, by, moments, ddof, eps, time_axis), 0, time_axis)


def steps_without_resets(
    terminated: OnDevice, truncated: OnDevice | None, prev_done: OnDevice | None, time_axis: int
) -> jax.Array:
    """Return where a step exists: the step before it ended no episode."""
    ends = _either(*(_steps(FLAG, time_axis, each) for each in (terminated, truncated)))
    before = None if prev_done is None else _envs(FLAG, ends.shape[1:], prev_done)
    return jnp.moveaxis(_without_resets(ends, before, None), 0, time_axis)


# Arguments


def _array(dtype: np.dtype[Any], given: Any) -> Any:
    array = jnp.broadcast_to(given.array if isinstance(given, OnDevice) else given, given.shape)
    return array != 0 if dtype is FLAG else array.astype(canonical(dtype))


def _steps(dtype: np.dtype[Any], axis: int, given: Any) -> Any:
    """Return an array of all steps with time as the first axis."""
    return None if given is None else jnp.moveaxis(_array(dtype, given), axis, 0)


def _envs(dtype: np.dtype[Any], shape: tuple[int, ...], given: Any) -> Any:
    """Return one number or flag per env."""
    return None if given is None else jnp.broadcast_to(_array(dtype, given), shape)


def _coefficient(axis: int, given: Any) -> Any:
    """Return a coefficient that is not rounded yet: a float, or an array that broadcasts."""
    if not isinstance(given, OnDevice):
        return given
    return jnp.moveaxis(given.array, axis, 0) if given.ndim else jnp.asarray(given.array)


def _rounded_product(dtype: np.dtype[Any], gamma: Any, decay: Any) -> Any:
    """Return the product in float64, rounded once. A product of two float32 needs no float64 for that."""
    if isinstance(gamma, float) and (isinstance(decay, float) or gamma == 1.0):
        return jnp.asarray(gamma * decay, dtype)
    if all(isinstance(each, jax.Array) and each.dtype == dtype for each in (gamma, decay)):
        return gamma * decay
    double = canonical(np.float64)
    return (jnp.asarray(gamma, double) * jnp.asarray(decay, double)).astype(dtype)


def _traces_of_next(ratios: Any, gae_lambda: Any, trace: Any, exists: Any) -> Any:
    """Return lambda min(ratio, 1) of the next step that exists, in float64; 0 if there is none."""
    zero = jnp.zeros(ratios.shape[1:], ratios.dtype)
    ratios = _next_existing(ratios, zero, exists)
    if not isinstance(gae_lambda, float):
        gae_lambda = _next_existing(jnp.broadcast_to(gae_lambda, ratios.shape), gae_lambda.dtype.type(0), exists)
    return _times(trace, jnp.asarray(gae_lambda, canonical(np.float64)), jnp.where(ratios > 1, 1, ratios))


def _values(call: Call, rewards: Any, truncated: Any, exists: Any) -> tuple[Any, Any]:
    """Return V and V' of all steps; None where the call has none."""
    axis, dtype = call.time_axis, rewards.dtype
    values, following = _steps(dtype, axis, call.values), _steps(dtype, axis, call.next_values)
    if values is not None and following is None:
        longer = len(values) > len(rewards)
        last = values[-1] if longer else _envs(dtype, rewards.shape[1:], call.last_values)
        values = values[: len(rewards)]
        following = _next_existing(values, last, exists)
    if call.final_values is None:
        return values, following
    final = _dense(call, dtype)
    return values, final if following is None else jnp.where(truncated, final, following)


def _dense(call: Call, dtype: np.dtype[Any]) -> Any:
    """Return final values in the shape of rewards. Sparse ones have one number per True of truncated, in C order."""
    if call.final_values.shape == call.rewards.shape:
        return _steps(dtype, call.time_axis, call.final_values)
    truncated = _array(FLAG, call.truncated)
    place = jnp.cumsum(truncated.reshape(-1), dtype=np.int32) - 1
    # Where numbers are missing, because the program cannot count flags while it is compiled, there is NaN.
    numbers = jnp.append(_array(dtype, call.final_values), np.nan)
    dense = numbers[jnp.clip(place, 0, len(numbers) - 1)].reshape(call.rewards.shape)
    return jnp.moveaxis(dense, call.time_axis, 0)


def _one_env(call: Call) -> Call:
    """Return packed sequences as one env whose episodes end with them."""
    total, starts = call.rewards.shape[0], call.cu_seqlens.array
    sequence = jnp.searchsorted(starts, jnp.arange(total, dtype=starts.dtype), side="right") - 1
    place = jnp.arange(total + 1, dtype=starts.dtype)
    exists = None if call.mask is None else _array(FLAG, call.mask)
    last_steps = _next_existing(place[:-1], place[-1], exists) >= starts[sequence + 1]
    inside = None if call.terminated is None else _array(FLAG, call.terminated)
    last = call.last_values

    def held(array: Any, dtype: np.dtype[Any]) -> OnDevice:
        return OnDevice(array, array.shape, dtype)

    def per_step(given: Any) -> Any:
        if not isinstance(given, OnDevice) or given.ndim != 2:
            return given
        return held(given.array[sequence, 0], given.dtype)

    if last is None:
        ends = {"terminated": held(_either(inside, last_steps), FLAG)}
    else:
        final = _envs(call.rewards.dtype, (len(starts) - 1,), last)[sequence]
        ends = {"truncated": held(last_steps, FLAG), "final_values": held(final, call.rewards.dtype)}
    zero = held(np.zeros((), call.rewards.dtype), call.rewards.dtype)
    coefficients = {name: per_step(getattr(call, name)) for name in ("gamma", "gae_lambda", "returns_lambda")}
    return call._replace(cu_seqlens=None, last_values=zero, **ends, **coefficients)


# Flags


def _either(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one | other


def _open(exists: Any, closed: Any) -> Any:
    """Return where a gate is open: the step exists, and is not among the closed ones."""
    return (True if exists is None else exists) & (True if closed is None else ~closed)


def _next_existing(rows: Any, last: Any, exists: Any) -> Any:
    """Return for every step the row of the next step that exists, or ``last`` if there is none."""
    last = jnp.broadcast_to(last, rows.shape[1:])
    if exists is None:
        return jnp.concatenate([rows[1:], last[np.newaxis]])[: len(rows)]
    return _carried(rows, last, exists, reverse=True)


def _without_resets(ends: Any, before: Any, exists: Any) -> Any:
    """Return where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    before = jnp.zeros(ends.shape[1:], bool) if before is None else before
    if exists is None:
        return ~jnp.concatenate([before[np.newaxis], ends])[:-1]
    return exists & ~_carried(ends, before, exists, reverse=False)


def _carried(rows: Any, beyond: Any, exists: Any, reverse: bool) -> Any:
    """Return for every step the row of the last step that a loop has passed and that exists."""

    def step(passed: Any, row: Any) -> tuple[Any, Any]:
        number, here = row
        return jnp.where(here, number, passed), passed

    return _loop(step, beyond, (rows, exists), reverse)


def _loop(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, rows: tuple[Any, ...], reverse: bool) -> Any:
    """Return the rows that a loop over time makes."""

    def loop(unroll: int) -> Callable[[Any, Any], Any]:
        return lambda carry, rows: lax.scan(step, carry, rows, reverse=reverse, unroll=unroll)[1]

    return lax.platform_dependent(_varying(carry, *rows), rows, cpu=loop(1), default=loop(UNROLLED))


def _varying(carry: Any, *rows: Any) -> Any:
    """Return the numbers that a loop begins with, in the type of its results: under shard_map, of several devices."""
    if not all(len(each) for each in rows):
        return carry
    return jnp.where(functools.reduce(operator.or_, (each[0] == each[0] for each in rows)), carry, carry)


# Arithmetic


def _differentiable(value: Callable[..., Any]) -> Any:
    """Return a function of a gate, two factors and perhaps more terms, with the derivative of their product and sum."""

    def derivative(primals: Any, tangents: Any) -> Any:
        gate, one, other, *_ = primals
        _, moved, other_moved, *moved_terms = tangents
        with numpys_dtypes():  # off where the derivative is traced
            # Numbers behind a closed gate are left out before they are multiplied, because 0 times NaN is NaN.
            products = moved * jnp.where(gate, other, 0) + jnp.where(gate, one, 0) * other_moved
            return function(*primals), sum(moved_terms, products)

    function = jax.custom_jvp(value)
    function.defjvp(derivative)
    return function


@_differentiable
def _times(gate: Any, one: Any, other: Any) -> Any:
    """Return one * other, rounded before anything is added to it; 0 where the gate is closed."""
    return jnp.where(gate, jnp.where(other == other, one * other, other), 0)


@_differentiable
def _plus(gate: Any, one: Any, other: Any, terms: Any) -> Any:
    """Return terms + one * other, the product only where the gate is open. Each is rounded on its own."""
    # XLA cannot know that NaN changes nothing here, so it can neither join product and sum, nor leave out + 0.0.
    numbers = (terms == terms) & (other == other)
    return jnp.where(gate, terms + jnp.where(numbers, one * other, terms + other), terms)


def _scan(terms: Any, decay: Any, initial: Any, trace: Any, exists: Any) -> Any:
    """Compute y_t = x_t + decay_t y_{t+1}, the second term only where the gate is open; a skipped step keeps y."""
    decay = jnp.broadcast_to(decay, terms.shape)
    if exists is not None:
        terms, decay, trace = jnp.where(exists, terms, -0.0), jnp.where(exists, decay, 1), trace | ~exists
    rows = terms, decay, jnp.broadcast_to(trace, terms.shape)

    def step(following: Any, row: Any) -> tuple[Any, Any]:
        term, factor, gate = row
        result = _plus(gate, factor, following, term)
        return result, result

    return _loop(step, initial, rows, reverse=True)


def _weights(ratios: Any, clip: Any, leaky: Any) -> Any:
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; in min(), NaN stays NaN and a zero keeps its sign."""
    clip, leaky = jnp.asarray(clip, ratios.dtype), np.asarray(leaky, ratios.dtype)
    clipped = jnp.where(ratios > clip, clip, ratios)
    return clipped if leaky == 0 else _times(True, 1 - leaky, clipped) + _times(True, leaky, ratios)


def _n_step_returns(rewards: Any, returns: Any, goes_on: Any, gamma: Any, n: int) -> Any:
    """Compute all returns together, one more step in each pass."""
    gamma = jnp.broadcast_to(gamma, rewards.shape)[:-1]
    goes_on = jnp.broadcast_to(goes_on, rewards.shape)[:-1]

    def longer(returns: Any, _: None) -> tuple[Any, None]:
        more = _plus(goes_on, gamma, returns[1:], rewards[:-1])
        return jnp.concatenate([jnp.where(goes_on, more, returns[:-1]), returns[-1:]]), None

    returns = _varying(returns, rewards, gamma, goes_on)
    return lax.scan(longer, returns, None, length=max(min(n, len(rewards)) - 1, 0))[0]


# Moments, in the order of additions that fastgae/_moments.py has


def _normalized(matrix: Any, exists: Any, by: str, moments: Any, ddof: int, eps: float, axis: int) -> Any:
    """Compute (x - mean) / (std + eps) for the steps that exist, in float64, and round it once."""
    if not matrix.size:
        return matrix
    wide = matrix.astype(canonical(np.float64))
    if moments is None:
        mean = _mean(_block_sums(wide, exists), exists, wide, by, 0)
        centered = wide - mean
        variance = _mean(_block_sums(_times(_open(exists, None), centered, centered), exists), exists, wide, by, ddof)
        still = variance == 0  # the root has no derivative at 0
        moments = mean, jnp.where(still, 0, jnp.sqrt(jnp.where(still, 1, variance)))
    mean, std = moments
    scaled = ((wide - mean) * (1.0 / (std + eps))).astype(matrix.dtype)
    return scaled if exists is None else jnp.where(exists, scaled, matrix)


def _block_sums(terms: Any, exists: Any) -> Any:
    """Sum over each MOMENT_STEPS steps, in the order of time."""
    if exists is not None:
        terms = jnp.where(exists, terms, -0.0)
    missing = -len(terms) % MOMENT_STEPS
    terms = jnp.concatenate([terms, jnp.full((missing, *terms.shape[1:]), -0.0)])
    rows = jnp.moveaxis(terms.reshape(-1, MOMENT_STEPS, *terms.shape[1:]), 1, 0)
    return lax.scan(lambda total, row: (total + row, None), _varying(jnp.zeros_like(rows[0]), rows), rows)[0]


def _mean(sums: Any, exists: Any, like: Any, by: str, ddof: int) -> Any:
    """Return sum / (count - ddof) of each env, or the quotient over all envs."""
    counts = (
        jnp.full(like.shape[1:], float(len(like))) if exists is None else exists.sum(0, dtype=canonical(np.float64))
    )
    per_env = _tree(sums)
    if by == "global":
        per_env, counts = _tree(per_env.reshape(-1)), counts.sum()
    # XLA would multiply by the reciprocal of a constant, which rounds twice.
    return per_env / lax.optimization_barrier(jnp.where(counts > ddof, counts - ddof, np.nan))


def _tree(terms: Any) -> Any:
    """Return the sum along the first axis: add one half to the other, again and again."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = jnp.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    return terms[0]
