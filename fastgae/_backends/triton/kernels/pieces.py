"""The states in which pieces of an env begin and end, kept to find the pieces that began with wrong numbers."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import State
from fastgae._backends.triton.kernels.views import offset, row

COMPARED = tl.constexpr(512)  # pieces that are compared at once


@jit
def _kept(inputs, state, how: tl.constexpr):
    """Return the numbers of a state on which the results depend, in float64."""
    kept = (state.trace.to(tl.float64),)
    if how.returns_recursion:
        kept = kept + (state.returns_trace.to(tl.float64),)
    if len(inputs.in_mask) > 0:
        kept = kept + (state.following.to(tl.float64),)
    if (how.kind == "upgo") or (len(inputs.last) > 0):
        kept = kept + (state.closed.to(tl.float64),)
    if how.kind == "tail_normalized":
        kept = kept + (state.steps_left.to(tl.float64),)
    if how.kind == "retrace":
        kept = kept + (state.decay,)
    return kept


@jit
def keep(states, lane, some, inputs, state, how: tl.constexpr):
    kept = _kept(inputs, state, how)
    for s in tl.static_range(how.kept):
        tl.store(states.data + offset(states, lane, s), kept[s], mask=some)


@jit
def keep_at(warm, done, begun, lane, inputs, state, how: tl.constexpr):
    """Keep the state after the warm-up."""
    if len(begun) > 0:  # noqa: SIM102 (only this condition is known when it is compiled)
        if done == warm:
            keep(begun, lane, lane >= 0, inputs, state, how)


@jit
def restored(states, lane, inputs, env, end, how: tl.constexpr):
    """Return the state that was kept."""
    zero = tl.full((how.lanes,), 0, how.real)
    kept = ()
    for s in tl.static_range(how.kept):
        kept = kept + (row(states, lane, s),)
    trace, returns_trace, following, steps_left = kept[0].to(how.real), zero, zero, zero
    closed, decay = lane < 0, zero.to(tl.float64)
    if how.returns_recursion:
        returns_trace = kept[1].to(how.real)
    if len(inputs.in_mask) > 0:
        following = kept[1 + how.returns_recursion].to(how.real)
    elif len(inputs.value) > 0:
        following = row(inputs.value, env, end).to(how.real)
    if (how.kind == "upgo") or (len(inputs.last) > 0):
        closed = kept[how.kept - 1] != 0
    if how.kind == "tail_normalized":
        steps_left = kept[how.kept - 1].to(how.real)
    if how.kind == "retrace":
        decay = kept[how.kept - 1]
    return State(trace, returns_trace, following, closed, steps_left, decay)


@jit
def differs(begun, reached, lane, envs, how: tl.constexpr):
    """Return which pieces did not begin in the state that the piece after them in time reached."""
    differs = lane < 0
    for s in tl.static_range(how.kept):
        one = row(begun, lane, s)
        other = row(reached, lane - envs, s)
        differs = differs | (one.to(tl.int64, bitcast=True) != other.to(tl.int64, bitcast=True))
    return differs


@jit
def first_wrong(begun, reached, env, envs, some, pieces, how: tl.constexpr):
    """Return the first number from ``some`` on of a piece that one of the envs must compute again, or ``pieces``."""
    some, first = tl.cast(some, tl.int32), tl.cast(pieces, tl.int32)
    while (some < pieces) & (first == pieces):
        number = tl.minimum(some + tl.arange(0, COMPARED // how.lanes), pieces - 1)[:, None]
        wrong = differs(begun, reached, number.to(tl.int64) * envs + env[None, :], envs, how)
        first = tl.minimum(first, tl.min(tl.min(tl.where(wrong, number, pieces), 1), 0))
        some += COMPARED // how.lanes
    return first
