"""JAX arrays, computed by the program that JAX compiles: for a GPU or a TPU, and for gradients on any device.

The recursion is written in ``jax.numpy`` and ``jax.lax``, so JAX can batch, differentiate and place it. On a CPU it has
the bits of the other backends. XLA would compute a product and a sum with one rounding, so a select stands between
them: it chooses the product where a gate is open, and where there is no gate, it chooses by a condition that XLA cannot
know. Like ``triton``, this backend never looks at the numbers: a wrong number has a meaning and raises no error.

Arrays have time as their first axis in here.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fastgae._backends.xla.loops import loop
from fastgae._call import EPS, MOMENT_STEPS, Call, GAEResult
from fastgae._equation import arrays as equation
from fastgae._equation.arrays import tree_sum
from fastgae._equation.trees import Trees
from fastgae._interop.arrays import OnDevice
from fastgae._interop.jax import canonical, numpys_promotion

RECURSIONS = equation.RECURSIONS


def version() -> str:
    return f"jax {jax.__version__}"


def takes(array: OnDevice) -> bool:
    return isinstance(array.array, jax.Array)


def gae(call: Call) -> GAEResult[Any]:
    """Compute a checked call. ``out`` is never given, because JAX arrays never change."""
    with np.errstate(over="ignore"):  # a number beyond the working dtype becomes infinity
        return equation.gae(Nodes(call) if call.recursion == "tree" else Arrays(call.rewards, call.time_axis), call)


class Arrays(equation.Library):
    """Arrays of JAX, with the bits of NumPy on a CPU, and with derivatives."""

    xp = jnp
    differentiates = True

    def __init__(self, rewards: Any, axis: int):
        self.dtype, self.axis = canonical(rewards.dtype), axis

    def array(self, given: Any, dtype: Any = None) -> Any:
        array = jnp.broadcast_to(given.array if isinstance(given, OnDevice) else given, given.shape)
        return array if dtype is None else array != 0 if dtype is bool else array.astype(canonical(dtype))

    def wide(self, given: Any) -> Any:
        return jnp.asarray(given, canonical(np.float64))

    def rounded(self, *factors: Any) -> Any:
        if all(isinstance(each, float) for each in factors):
            return jnp.asarray(math.prod(factors), self.dtype)
        if all(isinstance(each, jax.Array) and each.dtype == self.dtype for each in factors):
            return _opaque(math.prod(factors))  # a product of two float32 needs no float64 to be rounded once
        return _opaque(super().rounded(*factors))

    def times(self, gate: Any, one: Any, other: Any) -> Any:
        return _times(gate, one, other)

    def plus(self, gate: Any, term: Any, one: Any, other: Any) -> Any:
        return _plus(gate, one, other, term)

    def minus(self, one: Any, other: Any) -> Any:
        return _opaque(one - _unknown(other, one))

    def added(self, one: Any, other: Any) -> Any:
        return one + _unknown(other, one)

    def quotient(self, one: Any, other: Any) -> Any:
        return _quotient(self.wide(one), self.wide(other)).astype(self.dtype)

    def scan(self, terms: Any, decay: Any, gate: Any, exists: Any, last: Any) -> Any:
        decay, gate = (_broadcast(each, terms) for each in (decay, gate))
        if exists is not None:  # -0.0 + 1 y is y, bit for bit
            terms, decay, gate = jnp.where(exists, terms, -0.0), jnp.where(exists, decay, 1), gate | ~exists

        def step(following: Any, row: Any) -> tuple[Any, Any]:
            term, factor, is_open = row
            result = _plus(is_open, factor, following, term)
            return result, result

        return loop(step, _varying(last, terms, decay, gate), terms, decay, gate)

    def next_existing(self, rows: Any, last: Any, exists: Any) -> Any:
        last = jnp.broadcast_to(last, rows.shape[1:])
        if exists is None:
            return jnp.concatenate([rows[1:], last[np.newaxis]])[: len(rows)]

        def step(passed: Any, row: Any) -> tuple[Any, Any]:
            number, here = row
            return jnp.where(here, number, passed), passed

        return loop(step, _varying(last, rows, exists), rows, exists)

    def n_steps(self, rewards: Any, returns: Any, goes_on: Any, gamma: Any, n: int, after: Any) -> Any:
        rows = slice(-1) if after is None else slice(None)
        gamma, goes_on = (jnp.broadcast_to(each, rewards.shape)[rows] for each in (gamma, goes_on))

        def longer(_: Any, returns: Any) -> Any:
            following = returns[1:] if after is None else jnp.take_along_axis(returns, after, 0)
            more = _plus(goes_on, gamma, following, rewards[rows])
            return jnp.concatenate([jnp.where(goes_on, more, returns[rows]), returns[len(more) :]])

        returns = _varying(returns, rewards, gamma, goes_on)
        return lax.fori_loop(0, min(n, len(rewards)) - 1, longer, returns)

    def normalized(self, advantages: Any, exists: Any, by: str) -> Any:
        return _normalized(advantages, exists, by, None, 0, EPS)

    def dense(self, call: Call) -> Any:
        """Return final values of all steps. Sparse ones have one number per True of truncated, in C order."""
        if call.final_values.shape == call.rewards.shape:
            return self.steps(call.final_values)
        place = jnp.cumsum(self.array(call.truncated, bool).reshape(-1), dtype=np.int32) - 1
        # Where numbers are missing, because the program cannot count flags while it is compiled, there is NaN.
        numbers = jnp.append(self.array(call.final_values, self.dtype), np.nan)
        dense = numbers[jnp.clip(place, 0, len(numbers) - 1)].reshape(call.rewards.shape)
        return jnp.moveaxis(dense, self.axis, 0)


class Nodes(Trees, Arrays):
    """Nodes of trees in place of steps, one after the other."""

    def __init__(self, call: Call):
        super().__init__(call, _tree_scan)

    def after_leaves(self, call: Call) -> Any:
        last = jnp.zeros((), self.dtype) if call.last_values is None else self.array(call.last_values, self.dtype)
        return self.dense(call._replace(final_values=last, truncated=self.leaves)) if last.ndim else last


def normalized(call: Call, moments: tuple[Any, Any] | None) -> jax.Array:
    """Return checked advantages, shifted and scaled by their own or by given moments; 0 outside of the mask."""
    lib = Arrays(call.rewards, call.time_axis)
    matrix, exists = lib.steps(call.rewards), lib.steps(call.mask, bool)
    if exists is not None:
        matrix = jnp.where(exists, matrix, 0)
    given = None if moments is None else tuple(lib.envs(each, matrix, np.dtype(np.float64)) for each in moments)
    return lib.back(_normalized(matrix, exists, call.normalize, given, *call.deviation))


def steps_without_resets(
    terminated: OnDevice, truncated: OnDevice | None, prev_done: OnDevice | None, time_axis: int
) -> jax.Array:
    """Return where a step exists: the step before it ended no episode."""
    lib = Arrays(terminated, time_axis)
    ends = equation.either(lib.steps(terminated, bool), lib.steps(truncated, bool))
    return lib.back(equation.without_resets(lib, ends, lib.envs(prev_done, ends, bool), None))


def _broadcast(given: Any, rows: Any) -> Any:
    """Return what broadcasts to rows as rows, or as a single row if all are the same."""
    given = jnp.asarray(given)
    given = given.reshape((1,) * (rows.ndim - given.ndim) + given.shape)
    return jnp.broadcast_to(given, (len(given), *rows.shape[1:]))


def _tree_scan(parents: Any, *each: Any) -> tuple[Any, Any]:
    *rows, follows, sums = each
    rows = [jnp.ones_like(follows) if row is None else row for row in rows]  # all nodes exist
    if not len(parents):
        return rows[1], sums
    follows, sums = (_varying(carry, parents, *rows) for carry in (follows, sums))

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        follows, sums = carry
        node, parent, share, term, decay, gate, exists = row
        y = jnp.where(exists, _plus(gate & follows[node], decay, sums[node], term), sums[node])
        hands = (exists | follows[node]) & (parent >= 0)
        above = jnp.where(hands, parent, len(parents))  # beyond the nodes: dropped
        total = _plus(hands, share, y, sums[parent])
        return (follows.at[above].set(True, mode="drop"), sums.at[above].set(total, mode="drop")), y

    nodes = jnp.arange(len(parents))
    (_, sums), y = lax.scan(step, (follows, sums), (nodes, parents, *rows), reverse=True)
    return y, sums


def _varying(carry: Any, *rows: Any) -> Any:
    """Return the numbers that a loop begins with, in the type of its results: under shard_map, of several devices."""
    if not all(len(each) for each in rows):
        return carry
    return jnp.where(functools.reduce(operator.or_, (each[0] == each[0] for each in rows)), carry, carry)


# Arithmetic


def _differentiable(value: Callable[..., Any]) -> Any:
    """Return a function of a gate, two factors and perhaps more terms, with the derivative of their product and sum.

    It saves time. For a second derivative of a loop, JAX drops it and differentiates ``value``.
    """

    def derivative(primals: Any, tangents: Any) -> Any:
        gate, one, other, *_ = primals
        _, moved, other_moved, *moved_terms = tangents
        with numpys_promotion():  # off where the derivative is traced
            products = _product(gate, moved, other) + _product(gate, one, other_moved)
            return function(*primals), sum(moved_terms, products)

    function = jax.custom_jvp(value)
    function.defjvp(derivative)
    return function


def _opaque(array: Any) -> Any:
    """Return the array. XLA cannot know that, so it rounds it: else it would compute (x + 1) - 2 as x - 1."""
    return jnp.where(array == array, array, array + lax.stop_gradient(array))


def _unknown(array: Any, other: Any) -> Any:
    """Return the array; NaN where the other is NaN, whose sum with it is NaN anyway.

    XLA does not know what the select gives. Else it would leave out a constant 0.0, which turns -0.0 into 0.0.
    """
    return jnp.where(other == other, array, lax.stop_gradient(other) + array)


def _product(gate: Any, one: Any, other: Any) -> Any:
    """Return one * other; 0 where the gate is closed, also in every derivative, in which 0 times NaN would be NaN."""
    return jnp.where(gate, one, 0) * jnp.where(gate, other, 0)


@_differentiable
def _times(gate: Any, one: Any, other: Any) -> Any:
    """Return one * other, rounded before anything is added to it; 0 where the gate is closed."""
    return _opaque(_product(gate, one, other))


@_differentiable
def _plus(gate: Any, one: Any, other: Any, terms: Any) -> Any:
    """Return terms + one * other, the product only where the gate is open. Each is rounded on its own."""
    # XLA cannot know that NaN changes nothing here, so it can neither join product and sum, nor leave out + 0.0. It
    # does know whether a constant is NaN, which a factor may be, so the product is asked.
    product = _product(gate, one, other)
    numbers = (terms == terms) & (product == product)
    return jnp.where(gate, terms + jnp.where(numbers, product, terms + product), terms)


def _quotient(one: Any, other: Any) -> Any:
    """Compute one / other in float64.

    XLA does not know what the select gives. Else it would multiply by the reciprocal of a constant, which rounds twice,
    and divide numbers that were float32 as float32, which a GPU only approximates.
    """
    return one / _unknown(other, one)


# Moments, in the order of additions that fastgae/_engine/moments.py has


def _normalized(matrix: Any, exists: Any, by: str, moments: Any, ddof: int, eps: float) -> Any:
    """Compute (x - mean) / (std + eps) for the steps that exist, in float64, and round it once."""
    if not matrix.size:
        return matrix
    wide = matrix.astype(canonical(np.float64))
    if moments is None:
        mean = _mean(_block_sums(wide), exists, wide, by, 0)
        centered, here = wide - mean, equation.is_open(exists, None)
        variance = _mean(_block_sums(_times(here, centered, centered)), exists, wide, by, ddof)
        still = variance == 0  # the root has no derivative at 0
        moments = mean, jnp.where(still, 0, jnp.sqrt(jnp.where(still, 1, variance)))
    mean, std = moments
    scaled = ((wide - mean) * (1.0 / (std + eps))).astype(matrix.dtype)
    return scaled if exists is None else jnp.where(exists, scaled, matrix)


def _block_sums(terms: Any) -> Any:
    """Sum over each MOMENT_STEPS steps, in the order of time. A step that does not exist has 0."""
    missing = -len(terms) % MOMENT_STEPS
    terms = jnp.concatenate([terms, jnp.zeros((missing, *terms.shape[1:]))])
    rows = jnp.moveaxis(terms.reshape(-1, MOMENT_STEPS, *terms.shape[1:]), 1, 0)
    return lax.scan(lambda total, row: (total + row, None), _varying(jnp.zeros_like(rows[0]), rows), rows)[0]


def _mean(sums: Any, exists: Any, like: Any, by: str, ddof: int) -> Any:
    """Return sum / (count - ddof) of each env, or the quotient over all envs."""
    counts = (
        jnp.full(like.shape[1:], float(len(like))) if exists is None else exists.sum(0, dtype=canonical(np.float64))
    )
    per_env = tree_sum(jnp, sums)
    if by == "global":
        per_env, counts = tree_sum(jnp, per_env.reshape(-1)), counts.sum()
    return _quotient(per_env, jnp.where(counts > ddof, counts - ddof, np.nan))
