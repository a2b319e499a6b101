"""The estimators as one array program, for every array library that has the operations of ``Library``.

Arrays have time as their first axis. A gate is an array of flags, or True where it is always open. It chooses between
two numbers, and never multiplies by 0, because 0 times NaN is NaN. Every operation is rounded on its own.
"""

import functools
import itertools
import operator
from typing import Any

import numpy as np

from fastgae._call import ABSENT, NEXT_STEP, Array, Call, GAEResult

RECURSIONS = ("gae", "n_step_returns", "retrace", "upgo", "tree")


class Library:
    """What an array library does in its own way. These are NumPy's ways, and ``xp`` is the module of the library.

    ``minus`` and ``overwritten`` may change their first argument, which nothing else reads afterwards.
    """

    xp: Any = np
    normalized: Any  # (advantages, exists, by): of JAX and torch, because ``_engine.moments`` normalizes those of NumPy
    differentiates = False  # numbers of steps that do not exist must not take part, because a gradient would find them

    def __init__(self, rewards: Any, axis: int):
        self.dtype, self.axis = rewards.dtype, axis

    def array(self, given: Any, dtype: Any = None) -> Any:
        """Return numbers in a dtype, or flags for bool; None: as they are."""
        return given if dtype is None else given.astype(dtype, copy=False)

    def wide(self, given: Any) -> Any:
        """Return a number or an array in float64."""
        return self.xp.asarray(given, dtype=self.xp.float64)

    def rounded(self, *factors: Any) -> Any:
        """Return the product in float64, rounded once to the working dtype. A factor of 1 changes no number."""
        factors = tuple(each for each in factors if not (type(each) is float and each == 1.0))
        return self.xp.asarray(functools.reduce(operator.mul, map(self.wide, factors or (1.0,))), dtype=self.dtype)

    def times(self, gate: Any, one: Any, other: Any) -> Any:
        """Return one * other. The product is read only where the gate is open."""
        return one * other

    def plus(self, gate: Any, term: Any, one: Any, other: Any) -> Any:
        """Return term + one * other, each rounded on its own; term where the gate is closed."""
        total = term.copy()
        self.xp.add(total, one * other, out=total, where=gate)
        return total

    def minus(self, one: Any, other: Any) -> Any:
        return self.xp.subtract(one, other, out=one)

    def added(self, one: Any, other: Any) -> Any:
        return one + other

    def quotient(self, one: Any, other: Any) -> Any:
        return one / other

    def overwritten(self, array: Any, gate: Any, numbers: Any) -> Any:
        """Return the array, with numbers in place of its own where the gate is open."""
        if self.differentiates:
            return self.xp.where(gate, numbers, array)
        self.xp.copyto(array, numbers, where=gate)
        return array

    def clipped(self, ratios: Any, clip: float) -> Any:
        """Return min(ratio, clip), where NaN stays NaN and a zero keeps its sign; at the clip, the ratio's gradient."""
        limit = self.rounded(clip)
        if not self.differentiates and limit > 0:
            return self.xp.minimum(ratios, limit)
        return self.xp.where(ratios > limit, limit, ratios)

    def scan(self, terms: Any, decay: Any, gate: Any, exists: Any, last: Any) -> Any:
        """Return y_t = plus(gate_t, x_t, decay_t, y_{t+1}). A step that does not exist keeps y_{t+1}."""
        xp, y, product = self.xp, terms.copy(), self.xp.empty_like(last)
        decay, gate = (xp.broadcast_to(each, y.shape) for each in (decay, gate))
        skipped = itertools.repeat(None) if exists is None else ~exists[::-1]
        for row, decays, goes_on, absent in zip(y[::-1], decay[::-1], gate[::-1], skipped, strict=False):
            xp.add(row, xp.multiply(decays, last, out=product), out=row, where=goes_on)
            if absent is not None:
                xp.copyto(row, last, where=absent)
            last = row
        return y

    def next_existing(self, rows: Any, last: Any, exists: Any) -> Any:
        """Return for every step the row of the next step that exists, or ``last`` if there is none."""
        following = self.xp.empty_like(rows)
        following[:-1], following[-1:] = rows[1:], last
        if exists is not None:
            for t in reversed(range(len(rows) - 1)):
                self.xp.copyto(following[t, ...], following[t + 1], where=~exists[t + 1])  # a view, also of one number
        return following

    def n_steps(self, rewards: Any, returns: Any, goes_on: Any, gamma: Any, n: int, after: Any) -> Any:
        """Return G^(n) from G^(1): G^(k)_t = r_t + gamma G^(k-1)_{t+1} where the gate is open, and else G^(1)_t.

        ``after`` holds the places of the steps that take the place of t + 1; None: t + 1.
        """
        rows = slice(-1) if after is None else slice(None)
        gamma, goes_on = (self.xp.broadcast_to(each, rewards.shape)[rows] for each in (gamma, goes_on))
        for _ in range(min(n, len(rewards)) - 1):
            following = returns[1:] if after is None else self.xp.take_along_axis(returns, after, 0)
            self.xp.copyto(returns[rows], rewards[rows] + gamma * following, where=goes_on)
        return returns

    def moved(self, array: Any, axis: int, to: int) -> Any:
        return self.xp.moveaxis(array, axis, to)

    def steps(self, given: Any, dtype: Any = None) -> Any:
        """Return numbers, or flags, of all steps; None for None."""
        return None if given is None else self.moved(self.array(given, dtype or self.dtype), self.axis, 0)

    def envs(self, given: Any, like: Any, dtype: Any = None) -> Any:
        """Return one number, or one flag, for each env; None for None."""
        return None if given is None else self.xp.broadcast_to(self.array(given, dtype or self.dtype), like.shape[1:])

    def dense(self, call: Call) -> Any:
        """Return final values of all steps."""
        return self.steps(call.final_values)

    def coefficient(self, given: Any) -> Any:
        """Return a number, or an array that broadcasts to all steps. It is not rounded yet."""
        if not getattr(given, "ndim", 0):
            return self.array(given) if hasattr(given, "ndim") else given
        return self.moved(self.array(given), self.axis, 0)

    def back(self, result: Any) -> Any:
        """Return a result with time as the axis that it has in the caller's arrays; None for None."""
        return None if result is None else self.moved(result, 0, self.axis)


def gae(lib: Library, call: Call) -> GAEResult[Any]:
    """delta = (r + gamma V') - V;  A = delta + gamma lambda A_next;  R = A + V; a closed gate leaves its term out."""
    rewards = lib.steps(call.rewards)
    if call.cu_seqlens is not None:
        call = one_env(lib, call, rewards)
    if call.values is None and call.next_values is not None:
        call = cut_at_the_end(lib, call)
    terminated, truncated, exists = (lib.steps(each, bool) for each in (call.terminated, call.truncated, call.mask))
    ends, zero = either(terminated, truncated), zeros(lib, rewards)
    values, following = values_of(lib, call, rewards, truncated, exists)
    if call.autoreset == NEXT_STEP:
        exists = without_resets(lib, ends, lib.envs(call.prev_done, rewards, bool), exists)
    live = exists if lib.differentiates else None
    here, bootstrap = is_open(live, None), is_open(live, terminated)
    if values is None and following is not None:  # of rewards alone, only final values are known
        bootstrap = bootstrap & truncated
    gamma, gae_lambda = lib.coefficient(call.gamma), lib.coefficient(call.gae_lambda)
    one_step = rewards if following is None else lib.plus(bootstrap, rewards, lib.rounded(gamma), following)
    if call.recursion == "n_step_returns":
        returns = n_step_returns(lib, call.n, rewards, one_step, lib.rounded(gamma), ends, exists)
        return GAEResult(None, lib.back(returns if exists is None else lib.overwritten(returns, ~exists, values)))
    deltas = one_step if values is None else lib.minus(one_step, values)
    if call.recursion == "upgo":  # a step is cut if the next delta is below 0 or NaN, or if there is none
        ends = either(ends, lib.next_existing(~(deltas >= 0), zero == 0, exists))
    trace, ratios = is_open(live, ends), lib.steps(call.ratios)
    if call.recursion == "retrace":
        gae_lambda, ratios = retrace_lambda(lib, gae_lambda, ratios, trace, exists), None
    decay, scan = lib.rounded(gamma, gae_lambda), functools.partial(lib.scan, gate=trace, exists=exists, last=zero)
    if call.tail_normalized:
        advantages = traced = tail_normalized(lib, deltas, here, decay, lib.rounded(gae_lambda), exists, scan)
    elif ratios is not None:
        advantages, traced = vtrace(lib, call, ratios, deltas, here, trace, decay, scan)
    else:
        last = lib.envs(call.last_advantages, rewards)
        advantages = traced = scan(deltas, decay, last=zero if last is None else last)
    if call.returns_lambda is not None:
        traced = scan(deltas, lib.rounded(gamma, lib.coefficient(call.returns_lambda)))
    returns = None if values is None else lib.added(traced, values)
    if exists is not None and not call.carry_over:
        advantages = lib.overwritten(advantages, ~exists, 0)
        returns = None if returns is None else lib.overwritten(returns, ~exists, values)
    if call.normalize is not None:
        advantages = lib.normalized(advantages, exists, call.normalize)
    return GAEResult(lib.back(advantages), lib.back(returns))


def n_step_returns(lib: Library, n: int, rewards: Any, one_step: Any, gamma: Any, ends: Any, exists: Any) -> Any:
    """G^(n) from G^(1) = r + gamma V'. Steps that do not exist are passed over."""
    after, goes_on = None, is_open(None, ends)
    if exists is not None:
        places = lib.xp.cumsum(lib.xp.ones_like(rewards, dtype=lib.xp.int32), 0) - 1
        after = lib.next_existing(places, zeros(lib, places), exists)  # 0 if there is none
        goes_on = is_open(after > 0, ends)
    return lib.n_steps(rewards, one_step, goes_on, gamma, n, after)


def retrace_lambda(lib: Library, gae_lambda: Any, ratios: Any, trace: Any, exists: Any) -> Any:
    """lambda min(ratio, 1) of the next step that exists."""
    weighted = lib.next_existing(lib.clipped(ratios, 1.0), zeros(lib, ratios), exists)
    if getattr(gae_lambda, "ndim", 0):
        gae_lambda = lib.xp.broadcast_to(gae_lambda, ratios.shape)
        gae_lambda = lib.next_existing(gae_lambda, zeros(lib, gae_lambda), exists)
    return lib.times(trace, lib.wide(gae_lambda), lib.wide(weighted))


def tail_normalized(lib: Library, deltas: Any, here: Any, decay: Any, gae_lambda: Any, exists: Any, scan: Any) -> Any:
    """A = G / D;  G = D delta + gamma lambda G_next;  D = 1 + lambda D_next."""
    left = scan(lib.xp.ones_like(deltas), gae_lambda)
    left = left if exists is None else lib.overwritten(left, ~exists, 1)
    return lib.quotient(scan(lib.times(here, left, deltas), decay), left)


def vtrace(lib: Library, call: Call, ratios: Any, deltas: Any, here: Any, trace: Any, decay: Any, scan: Any) -> Any:
    """A = w (delta + gamma lambda R_next)  and  R = rho delta + gamma lambda c R_next, which lacks V."""
    leaky = call.rewards.dtype.type(call.leaky)  # a number that is 0 in float32 leaks nothing
    weight = functools.partial(weights, lib, ratios, leaky=leaky)
    weighted = lib.times(here, weight(call.rho_clip), deltas)
    traced = scan(weighted, lib.times(trace, weight(call.c_clip), decay))
    after = lib.plus(trace, deltas, decay, lib.next_existing(traced, zeros(lib, deltas), None))
    return lib.times(here, weight(call.advantage_clip), after), traced


def fill(lib: Library, call: Call) -> None:
    """Fill ``out`` of a call as ``in_one_layout`` makes it, with results in NumPy."""
    for output, result in zip(call.out, gae(lib, given_only(call)), strict=True):
        if output is not None:
            output[...] = result


def one_env(lib: Library, call: Call, rewards: Any) -> Call:
    """Return packed sequences as one env whose episodes end with them."""
    starts, exists, inside = lib.array(call.cu_seqlens), lib.steps(call.mask, bool), lib.steps(call.terminated, bool)
    after = lib.xp.cumsum(lib.xp.ones_like(rewards, dtype=starts.dtype), 0)  # the place of the step after each
    sequence = lib.xp.searchsorted(starts, after - 1, side="right") - 1
    last_steps = lib.next_existing(after - 1, starts[-1], exists) >= starts[sequence + 1]
    if call.last_values is None:
        ends = {"terminated": either(inside, last_steps)}
    else:
        last = lib.xp.broadcast_to(lib.array(call.last_values, lib.dtype), (len(starts) - 1,))
        ends = {"truncated": last_steps, "final_values": last[sequence]}
    coefficients = {
        name: lib.array(given)[sequence, 0]
        for name in ("gamma", "gae_lambda", "returns_lambda")
        if getattr(given := getattr(call, name), "ndim", 0) == 2
    }
    return call._replace(cu_seqlens=None, last_values=zeros(lib, rewards), **ends, **coefficients)


def values_of(lib: Library, call: Call, rewards: Any, truncated: Any, exists: Any) -> tuple[Any, Any]:
    """Return V and V' of all steps; None where the call has none."""
    values, following = lib.steps(call.values), lib.steps(call.next_values)
    if values is not None:
        last = values[-1] if len(values) > len(rewards) else lib.envs(call.last_values, rewards)
        values = values[: len(rewards)]
        following = lib.next_existing(values, last, exists) if following is None else following
    if call.final_values is not None:
        final = lib.dense(call)
        following = final if following is None else lib.overwritten(following, truncated, final)
    return values, following


def cut_at_the_end(lib: Library, call: Call) -> Call:
    """Return a call of rewards alone with next_values as final values, and its last steps truncated, which need one."""
    steps, exists = lib.steps(call.rewards), lib.steps(call.mask, bool)
    more = lib.next_existing(lib.array(lib.xp.ones_like(steps), bool), zeros(lib, steps) != 0, exists)
    truncated = lib.back(either(lib.steps(call.truncated, bool), ~more))
    return call._replace(truncated=truncated, final_values=call.next_values, next_values=None)


def without_resets(lib: Library, ends: Any, before: Any, exists: Any) -> Any:
    """Return where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    flip, first = lib.xp.flip, zeros(lib, ends) if before is None else before
    after_end = lib.next_existing(flip(ends, (0,)), first, None if exists is None else flip(exists, (0,)))
    return is_open(exists, flip(after_end, (0,)))


def zeros(lib: Library, rows: Any) -> Any:
    """Return a row of zeros, also where there are no rows."""
    return lib.xp.zeros_like(rows[:1].sum(0), dtype=rows.dtype)


def weights(lib: Library, ratios: Any, clip: float, leaky: Any) -> Any:
    """Return (1 - leaky) min(ratio, clip) + leaky ratio."""
    most, leaked = lib.clipped(ratios, clip), lib.rounded(leaky)
    return most if leaky == 0 else lib.times(True, 1 - leaked, most) + lib.times(True, leaked, ratios)


def either(one: Any, other: Any) -> Any:
    """Return where one of two flags is set. None stands for flags that are all 0."""
    return other if one is None else one if other is None else one | other


def is_open(exists: Any, closed: Any) -> Any:
    """Return where a gate is open: the step exists, and is not among the closed ones."""
    if closed is None:
        return True if exists is None else exists
    return ~closed if exists is None else exists & ~closed


# What a call with autoreset="next_step" is without it, for backends that know only a mask


def without_reset_rows(call: Call) -> Call:
    """Return the call with a mask that leaves out the rows in which ``autoreset="next_step"`` resets an env."""
    lib = Library(call.rewards, call.time_axis)
    mask = lib.steps(call.mask, bool)
    if mask is not None and call.next_values is None:
        call = _with_next_values(lib, call, mask)
    done = lib.steps(either(call.terminated, call.truncated), bool)
    return call._replace(mask=lib.back(without_resets(lib, done, call.prev_done, mask)))


def with_next_values(call: Call) -> Call:
    """Return a call from ``without_reset_rows`` as one without autoreset: V' of every step is in ``next_values``."""
    if call.next_values is None:
        call = _with_next_values(Library(call.rewards, call.time_axis), call, None)
    values = call.values[(slice(None),) * call.time_axis + (slice(call.rewards.shape[call.time_axis]),)]
    return call._replace(values=values, last_values=None, autoreset=None, prev_done=None)


def _with_next_values(lib: Library, call: Call, mask: Array | None) -> Call:
    _, following = values_of(lib, call, lib.steps(call.rewards), None, mask)
    return call._replace(next_values=lib.back(following))


def given_only(call: Call) -> Call:
    """Return the call with None for arguments that its estimator does not have."""
    return Call._make(None if argument is ABSENT else argument for argument in call)


def tree_sum(xp: Any, terms: Any) -> Any:
    """Return the sum along the first axis: add one half to the other, again and again."""
    while len(terms) > 1:
        half = len(terms) // 2
        sums = terms[:half] + terms[half : 2 * half]
        terms = xp.concatenate([sums, terms[2 * half :]]) if len(terms) % 2 else sums
    return terms[0]
