"""The recursion on a GPU: each lane of a program computes one env from its last step on, or one piece of an env.

Every operation is rounded on its own, in the order of the reference in fastgae/_backends/numpy.py. A gate selects
between the sum and the number without the term. That also stands between a product and a sum, which a compiler could
otherwise fuse; the launch forbids fusing too.

A turn is some steps. While a turn is computed, the numbers of the next turns are on their way into shared memory, so a
lane seldom waits for them (``num_stages`` of ``tl.range``). A warp reads them as tiles, each row of which lies together
in memory, whether rows are steps or envs; from shared memory, each lane takes its own. Only the first steps of an env,
fewer than a turn, are masked, and the last ones of a piece or of a packed sequence that ends where no tile does.

An env may be cut into pieces, each of which is a lane. All but the last in time begin some steps late, with A = 0: the
rounded recursion forgets where it began. The same kernel, launched again to mend, compares the state in which a piece
began with the state that its successor reached. Where they differ, it computes the piece again. So the results are
exact, whatever the numbers are. Where gamma lambda is 1, pieces of the kind "deltas" compute all but the sum.
"""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import FIELDS, Numbers, State, chosen, step
from fastgae._backends.triton.kernels.turns import load_rows, load_turn, places, rows_of_turn, store
from fastgae._backends.triton.kernels.views import offset, row, row_or_number

NEVER = tl.constexpr(2**31 - 1)  # a lane that stores nothing does so from this step on


class Lanes(NamedTuple):
    """Which steps the lanes of a program compute."""

    env: Any
    end: Any  # the step after the first one that is computed
    beyond: Any  # how many of those steps do not exist, first ones
    length: Any
    stored: Any  # of a piece: results are stored from this step on


@jit
def recursion(
    inputs,
    ends,  # V and A after the last step; where packed sequences begin, if each of them is a lane
    outputs,  # advantages and returns
    states,  # those in which pieces began, if they are compared, and those at the first steps of pieces
    steps,
    envs,
    pieces,
    piece,  # steps of a piece
    warm,  # steps of its warm-up
    last_value: tl.float64,  # used if there are no last_values, and so on
    last_advantage: tl.float64,
    gamma: tl.float64,
    lambda_: tl.float64,
    returns_lambda: tl.float64,
    rho_clip: tl.float64,
    c_clip: tl.float64,
    advantage_clip: tl.float64,
    leaky: tl.float64,
    how: tl.constexpr,
):
    """delta = (r + gamma V') - V;  A = delta + gamma lambda A_next;  R = A + V; a closed gate leaves its term out."""
    lane = tl.program_id(0).to(tl.int64) * how.lanes + tl.arange(0, how.lanes)
    given, numbers = (gamma, lambda_, returns_lambda, rho_clip, c_clip, advantage_clip, leaky), ()
    for k in tl.static_range(len(given)):
        numbers = numbers + (tl.full((how.lanes,), given[k], tl.float64),)
    numbers = Numbers(*numbers)
    begun, reached = states
    whole, none = _aligned(steps, how), tl.full((how.lanes,), 0, tl.int32)
    if how.mend:
        env = tl.program_id(0).to(tl.int64)
        first, passed = first_wrong(begun, reached, env, envs, 1, pieces, how), tl.cast(0, tl.int32)
        while first < pieces:
            number = first + tl.arange(0, how.lanes)
            lane = tl.minimum(number, pieces - 1).to(tl.int64) * envs + env
            end = whole - lane // envs * piece - warm
            lanes = Lanes(lane * 0 + env, end, none, tl.minimum(end, piece).to(tl.int32), 0)
            state = restored(reached, lane - envs, _begun(inputs, ((), (), ()), lanes, lane, 0, 0, envs, how), how)
            # A NaN passes all steps until an episode ends: all those of the pieces before number ``passed``, so far.
            nan = state.trace != state.trace
            wrong = (number == first) | (nan & (number <= passed) & (number < pieces))
            lanes = Lanes(lanes.env, end, none, lanes.length, tl.where(wrong, 0, NEVER))
            keep(begun, lane, wrong, state, how)
            state = _walked(inputs, outputs, lanes, state, numbers, (), lane, warm, how)
            passed = tl.min(tl.where(nan & (state.trace != state.trace), first + how.lanes, number), 0)
            keep(reached, lane, wrong, state, how)
            tl.debug_barrier()  # the threads that stored a state are not those that compare it
            first = first_wrong(begun, reached, env, envs, first + 1, pieces, how)
    else:
        if how.lane == "sequence":
            begin, end = bounds(ends[2], tl.minimum(lane, pieces - 1), steps)
            aligned = _aligned(end, how)
            beyond, length = (aligned - end).to(tl.int32), (aligned - begin).to(tl.int32)
            lanes = Lanes(lane * 0, aligned, beyond, length, 0)
        elif how.lane == "piece":
            lane = tl.minimum(lane, tl.cast(envs, tl.int64) * pieces - 1)
            end, latest = whole - lane // envs * piece, lane < envs
            length, beyond = tl.minimum(end, piece + warm).to(tl.int32), tl.where(latest, whole - steps, 0).to(tl.int32)
            lanes = Lanes(lane % envs, end, beyond, length, tl.where(latest, 0, warm))
        else:
            lanes = Lanes(lane, tl.full((how.lanes,), steps, tl.int64), none, tl.where(lane < envs, steps, 0), 0)
        state = _begun(inputs, ends, lanes, lane, last_value, last_advantage, envs, how)
        state = _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how)
        if len(reached) > 0:
            keep(reached, lane, lane >= 0, state, how)


@jit
def _aligned(end, how: tl.constexpr):
    """Return the next place from ``end`` on where many bytes can be read at once."""
    return (end + how.head - 1) // how.head * how.head


@jit
def _begun(inputs, ends, lanes, lane, last_value, last_advantage, envs, how: tl.constexpr):
    """Return the state in which lanes begin. Pieces but the last in time begin with A = 0."""
    zero = tl.full((how.lanes,), 0, how.real)
    lanes = Lanes(tl.minimum(lanes.env, envs - 1), *lanes[1:])
    last_values, last_advantages, _ = ends
    following = row_or_number(last_values, lanes.env, last_value, how.real)
    trace = row_or_number(last_advantages, lanes.env, last_advantage, how.real)
    if how.lane == "piece":
        trace = tl.where(lane < envs, trace, zero)
        if (len(inputs.value) > 0) and (len(inputs.mask) == 0):
            at = inputs.value.data + offset(inputs.value, lanes.env, lanes.end)
            following = tl.where(lane < envs, following, tl.load(at, mask=lane >= envs, other=0).to(how.real))
    return State(trace, trace, following, tl.full((how.lanes,), how.kind == "upgo", tl.int1), zero, zero.to(tl.float64))


@jit
def _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how: tl.constexpr):
    """Compute the steps of the lanes from their ends on, store the results, and return the state at the first steps."""
    end, length, none = lanes.end, lanes.length, tl.full((how.lanes,), 0, tl.int32)
    if how.lane != "env":
        head = tl.where(lanes.beyond > 0, how.head, 0)
        state = _masked(inputs, outputs, lanes, end, lanes.beyond, tl.minimum(length, head), state, numbers, how)
        end, length = tl.multiple_of(end - head, how.head), tl.maximum(length - head, 0)
    whole = length // how.steps * how.steps
    most = tl.max(whole, 0)
    at, to = places(inputs, lanes.env, end), places(outputs, lanes.env, end)
    for done in tl.range(0, most, how.steps, num_stages=how.stages):
        alive, before = done < whole, state
        stored = alive
        if how.lane == "piece":
            stored = alive & (done >= lanes.stored)
        turn = load_turn(inputs, at, done, alive, how)
        if len(begun) > 0:  # noqa: SIM102 (only this condition is known when it is compiled)
            if done == warm:
                keep(begun, lane, alive, state, how)
        state, to = _turn(
            inputs, outputs, rows_of_turn(inputs, turn, how), to, done, stored, how.steps, True, state, numbers, how
        )
        if how.lane != "env":
            state = chosen(alive, state, before)
    if len(begun) > 0:
        keep(begun, lane, whole == warm, state, how)
    left = length - whole
    if how.lane == "piece":
        left = tl.where(lanes.stored == NEVER, 0, left)
    return _masked(inputs, outputs, lanes, end - whole, none, left, state, numbers, how)


@jit
def _masked(inputs, outputs, lanes, end, first, count, state, numbers, how: tl.constexpr):
    """Compute ``count`` steps of each lane before ``end``, of which the first ones do not exist."""
    for done in range(0, tl.max(count, 0), how.tail):
        some = (first - done, count - done)
        at, to = places(inputs, lanes.env, end - done), places(outputs, lanes.env, end - done)
        rows = load_rows(inputs, at, *some, how.tail, how)
        state, to = _turn(inputs, outputs, rows, to, 0, some, how.tail, False, state, numbers, how)
    return state


@jit
def _turn(
    inputs, outputs, rows, to, done, some, count: tl.constexpr, tiled: tl.constexpr, state, numbers, how: tl.constexpr
):
    """Compute and store ``count`` steps."""
    results = ((), ())
    for i in tl.static_range(count):
        these = ()
        for k in tl.static_range(len(rows)):
            these = these + (rows[k][i] if len(rows[k]) > 0 else (),)
        before = state
        state, advantage, target = step(inputs, these, state, numbers, how)
        if not tiled:
            state = chosen((i >= some[0]) & (i < some[1]), state, before)
        results = (results[0] + (advantage,), results[1] + (target,))
        to = store(outputs, to, results, done, i, some, tiled, how)
    return state, to


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


@jit
def bounds(boundaries, number, steps):
    """Return where a sequence begins and ends: inside of the arrays, because nobody checks what the boundaries are."""
    at = boundaries.data + number * boundaries.env
    begin = tl.minimum(tl.maximum(tl.load(at).to(tl.int64), 0), steps)
    end = tl.minimum(tl.maximum(tl.load(at + boundaries.env).to(tl.int64), begin), steps)
    return begin, end


@jit
def sequence_steps(
    sequences,  # where they begin, and V after each
    coefficients,  # one for each sequence
    outputs,  # last, final_values
    coefficients_of_steps,
    steps,
    last_value: tl.float64,
    REAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store for each step of a packed sequence whether it is the last one, V after it, and its coefficients."""
    number = tl.program_id(0).to(tl.int64)
    begin, end = bounds(sequences[0], number, steps)
    last, final_values = outputs
    for first in range(begin, end, BLOCK):
        t = first + tl.arange(0, BLOCK)
        tl.store(last.data + t, (t == end - 1).to(tl.uint8), mask=t < end)
        for k in tl.static_range(len(coefficients)):
            here = tl.load(coefficients[k].data + number * coefficients[k].env).to(tl.float64)
            tl.store(coefficients_of_steps[k].data + t, here, mask=t < end)
        if len(final_values) > 0:
            value = row_or_number(sequences[1], number, last_value, REAL)
            tl.store(final_values.data + t, value, mask=t == end - 1)
