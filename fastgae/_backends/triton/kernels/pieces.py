"""The states in which pieces of an env begin and end, kept to find the pieces that began with wrong numbers."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import FIELDS, State
from fastgae._backends.triton.kernels.views import offset, row


@jit
def keep(states, lane, some, state, how: tl.constexpr):
    """Store the numbers of a state on which the results depend, in float64."""
    for k in tl.static_range(len(state)):
        if (how.kept >> k) & 1:
            tl.store(states.data + offset(states, lane, k), state[k].to(tl.float64), mask=some)


@jit
def restored(states, lane, state, how: tl.constexpr):
    """Return a state with the numbers that were kept, or with NaN where that is the number of the first lane."""
    fields = ()
    for k in tl.static_range(len(state)):
        field = state[k]
        if (how.kept >> k) & 1:
            number, of_first = row(states, lane, k), row(states, lane * 0 + tl.min(lane, 0), k)
            field = tl.where(of_first == of_first, number, of_first).to(field.dtype)
        fields = fields + (field,)
    return State(*fields)


@jit
def first_wrong(begun, reached, env, envs, some, pieces, how: tl.constexpr):
    """Return the first number from ``some`` on of a piece of an env that must be computed again, or ``pieces``.

    A piece is right if it began, bit for bit, in the state that the piece after it in time reached.
    """
    some, first = tl.cast(some, tl.int32), tl.cast(pieces, tl.int32)
    while (some < pieces) & (first == pieces):
        number = tl.minimum(some + tl.arange(0, how.compared), pieces - 1)
        lane = number.to(tl.int64) * envs + env
        wrong = lane < 0
        for k in tl.static_range(FIELDS):
            if (how.kept >> k) & 1:
                one, other = row(begun, lane, k), row(reached, lane - envs, k)
                wrong = wrong | (one.to(tl.int64, bitcast=True) != other.to(tl.int64, bitcast=True))
        first = tl.min(tl.where(wrong, number, pieces), 0)
        some += how.compared
    return first
