"""One step of the recursion: its equations, in which a closed gate leaves a term out."""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit


class Inputs(NamedTuple):
    """The matrices that a step reads, or what it has read of them: numbers, then flags, then coefficients.

    A field that has a name of ``Call`` is that argument.
    """

    rewards: Any
    value: Any = ()  # V; a tuple of Triton has another attribute of the name `values`
    next_values: Any = ()  # missing: V of the next step in the mask
    final_values: Any = ()
    ratios: Any = ()
    terminated: Any = ()
    truncated: Any = ()
    mask: Any = ()  # V' passes the steps that are not in it
    exists: Any = ()  # the mask without reset rows: A passes the steps that are not in it
    last: Any = ()  # the last step of a packed sequence
    gamma: Any = ()
    gae_lambda: Any = ()
    returns_lambda: Any = ()


FIRST_FLAG, FIRST_COEFFICIENT = (tl.constexpr(Inputs._fields.index(name)) for name in ("terminated", "gamma"))


class How(NamedTuple):
    """What a kernel is compiled for. Each field is a ``tl.constexpr``."""

    kind: Any  # "gae", "tail_normalized", "vtrace", "retrace" or "upgo"; "deltas": delta, and whether A_next is closed
    leaky: Any  # the constant leaky is not 0
    undiscounted: Any  # gamma and lambda are 1
    returns_recursion: Any  # the returns have a lambda of their own
    carry_over: Any  # a skipped step gets A of the next one that exists
    lane: Any  # what a lane computes: an "env", a "piece" of one, or a packed "sequence"
    real: Any  # the working dtype
    lanes: Any
    steps: Any  # of a turn
    tail: Any  # steps of a masked turn
    head: Any  # whole turns end at multiples of so many steps
    stages: Any  # turns that are under way, of which one is computed
    kept: Any  # the fields of State on which the results depend: bits
    mend: Any = False  # compute only the pieces that began with wrong numbers
    compared: Any = 0  # pieces of which a program that mends compares the first states at once


class State(NamedTuple):
    """What a step gets from the next one."""

    trace: Any  # A
    returns_trace: Any  # A with the lambda of the returns
    following: Any  # V
    closed: Any  # A is not used, because a sequence ended, or because upgo's delta is negative
    steps_left: Any  # D of the tail-normalized form
    decay: Any  # lambda min(ratio, 1) of retrace


FIELDS = tl.constexpr(len(State._fields))


class Numbers(NamedTuple):
    """The coefficients that are not inputs, and the constants, in float64."""

    gamma: Any
    lambda_: Any
    returns_lambda: Any
    rho_clip: Any
    c_clip: Any
    advantage_clip: Any
    leaky: Any


@jit
def step(inputs, row, state, numbers, how: tl.constexpr):
    """Return the state after a step, its advantage and its return."""
    row = Inputs(*row)
    one = tl.full((how.lanes,), 1, how.real)
    zero = tl.full((how.lanes,), 0, how.real)
    gamma, lambda_, returns_lambda = numbers.gamma, numbers.lambda_, numbers.returns_lambda
    if len(inputs.gamma) > 0:
        gamma = row.gamma
    if len(inputs.gae_lambda) > 0:
        lambda_ = row.gae_lambda
    if len(inputs.returns_lambda) > 0:
        returns_lambda = row.returns_lambda

    bootstrap = None  # the gates; None is always open
    if len(inputs.terminated) > 0:
        bootstrap = row.terminated == 0
    is_open = bootstrap
    if len(inputs.truncated) > 0:
        is_open = _and(is_open, row.truncated == 0)
    closed_here, following = state.closed, state.following
    if len(inputs.last) > 0:
        closed_here = closed_here | (row.last != 0)
        if len(inputs.final_values) > 0:
            following = tl.where(row.last != 0, row.final_values, following)
    if (len(inputs.last) > 0) or (how.kind == "upgo"):
        is_open = _and(is_open, ~closed_here)
    if (len(inputs.last) > 0) and (len(inputs.final_values) == 0):
        bootstrap = is_open

    here, upcoming, delta = zero, following, row.rewards
    if len(inputs.next_values) > 0:
        upcoming = row.next_values
    if (len(inputs.final_values) > 0) and (len(inputs.truncated) > 0):
        upcoming = tl.where(row.truncated != 0, row.final_values, upcoming)
        if len(inputs.value) == 0:
            bootstrap = _and(bootstrap, row.truncated != 0)
    if (len(inputs.value) > 0) or (len(inputs.final_values) > 0):
        delta = _sum(bootstrap, delta, _times(gamma, upcoming, how))
    if len(inputs.value) > 0:
        here = row.value
        delta = delta - here

    decay = gamma * lambda_
    if how.kind == "retrace":
        decay = gamma * state.decay
    steps_left, next_decay = state.steps_left, state.decay
    if how.kind == "tail_normalized":
        steps_left = _sum(is_open, one, _times(lambda_, state.steps_left, how))
        passed = _sum(is_open, steps_left * delta, _times(decay, state.trace, how))
        advantage = _divided(passed, steps_left, how)
        target = advantage
    elif how.kind == "vtrace":
        advantage = _sum(is_open, delta, _times(decay, state.trace, how))
        advantage = advantage * _weight(row.ratios, numbers.advantage_clip, numbers.leaky, how)
        slowed = _weight(row.ratios, numbers.c_clip, numbers.leaky, how) * decay.to(how.real)
        delta = _weight(row.ratios, numbers.rho_clip, numbers.leaky, how) * delta
        passed = _sum(is_open, delta, slowed * state.trace)
        target = passed
    else:
        passed = delta if how.kind == "deltas" else _sum(is_open, delta, _times(decay, state.trace, how))
        advantage, target = passed, passed
        if how.kind == "retrace":
            next_decay = lambda_ * tl.where(row.ratios > 1, one, row.ratios).to(tl.float64)
    if how.returns_recursion:
        target = _sum(is_open, delta, (gamma * returns_lambda).to(how.real) * state.returns_trace)
    result = target
    if len(inputs.value) > 0:
        result = target + here
        if len(inputs.mask) > 0:
            following = tl.where(row.mask != 0, here, following)
        else:
            following = here
    if how.kind == "upgo":
        closed = ~(delta >= 0)
    else:
        closed = state.closed & False
    after = State(passed, target, following, closed, steps_left, next_decay)
    if (len(inputs.exists) > 0) or (len(inputs.mask) > 0):
        if len(inputs.exists) > 0:
            real = row.exists != 0
        else:
            real = row.mask != 0
        skipped = State(state.trace, state.returns_trace, following, closed_here, state.steps_left, state.decay)
        after = chosen(real, after, skipped)
        if how.carry_over:
            advantage, result = after.trace, after.trace + here
            if how.returns_recursion:
                result = after.returns_trace + here
        else:
            advantage, result = tl.where(real, advantage, zero), tl.where(real, result, here)
    if (how.kind == "deltas") and (is_open is not None):
        result = (~is_open).to(tl.uint8)
    return after, advantage, result


@jit
def chosen(some, state, other):
    """Return a state for some lanes, and the other one for the rest."""
    fields = ()
    for k in tl.static_range(FIELDS):
        fields = fields + (tl.where(some, state[k], other[k]),)
    return State(*fields)


@jit
def _and(one, other):
    """Return whether both gates are open. None is always open."""
    return other if one is None else one & other


@jit
def _sum(is_open, number, term):
    """Return the sum where the gate is open, and elsewhere the number without the term."""
    return number + term if is_open is None else tl.where(is_open, number + term, number)


@jit
def _times(factor, number, how: tl.constexpr):
    """Return the product with a coefficient, which is rounded to the working dtype first."""
    return number if how.undiscounted else factor.to(how.real) * number


@jit
def _divided(one, other, how: tl.constexpr):
    return one / other if how.real == tl.float64 else tl.div_rn(one, other)  # of float32, `/` is an approximation


@jit
def _weight(ratio, most, leaky, how: tl.constexpr):
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; in min(), NaN stays NaN and a zero keeps its sign."""
    most, leaky = most.to(how.real), leaky.to(how.real)
    clipped = tl.where(ratio > most, most, ratio)
    if how.leaky:
        clipped = (1 - leaky) * clipped + leaky * ratio
    return clipped
