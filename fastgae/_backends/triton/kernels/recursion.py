"""The recursion on a GPU: each lane of a program computes one env from its last step on, or one piece of an env.

Every operation is rounded on its own, in the order of the reference in fastgae/_backends/numpy.py. A gate selects
between the sum and the number without the term. That also stands between a product and a sum, which a compiler could
otherwise fuse; the launch forbids fusing too.

A turn is some steps. While a lane computes a turn, it loads the next one, so it seldom waits for the memory. Where the
steps of an env are adjacent, a turn is one tile, which the compiler transposes in shared memory. Only the first steps
of an env, fewer than a turn, are masked. Lanes beyond the last env compute it again, and store the same bits.
Each lane also computes delta. To compute it in tiles, and to transpose only delta and the gates, would take 449 stall
cycles of 16 steps on sm_90 where gamma lambda is 1, in four warps 451, and this way it takes 389.

An env may be cut into pieces, each of which is a lane. All but the last in time begin some steps late, with A = 0: the
rounded recursion forgets where it began. The same kernel, launched again to mend, compares the state in which a piece
began with the state that its successor reached. Where they differ, it computes the piece again. So the results are
exact, whatever the numbers are.
"""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.packed import bounds
from fastgae._backends.triton.kernels.pieces import differs, first_wrong, keep, keep_at, restored
from fastgae._backends.triton.kernels.step import Numbers, State, step
from fastgae._backends.triton.kernels.turns import empty, load, places, rows_of, store
from fastgae._backends.triton.kernels.views import offset, row_or_number

NEVER = tl.constexpr(2**31 - 1)  # a lane that stores nothing does so from this step on


class Lanes(NamedTuple):
    """Which steps the lanes of a program compute."""

    env: Any
    end: Any  # the step after the first one that is computed
    length: Any
    longest: Any
    shortest: Any
    stored: Any  # a vector: results are stored from this step of each lane on; (): all are stored


@jit
def recursion(
    inputs,
    last_values,
    last_advantages,
    boundaries,  # where packed sequences begin, if each of them is a lane
    advantages,
    returns,
    begun,  # the states in which pieces began, if envs are cut
    reached,  # the states at the first steps of pieces
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
    numbers = Numbers(
        tl.full((how.lanes,), gamma, tl.float64),
        tl.full((how.lanes,), lambda_, tl.float64),
        tl.full((how.lanes,), returns_lambda, tl.float64),
        tl.full((how.lanes,), rho_clip, tl.float64).to(how.real),
        tl.full((how.lanes,), c_clip, tl.float64).to(how.real),
        tl.full((how.lanes,), advantage_clip, tl.float64).to(how.real),
        tl.full((how.lanes,), leaky, tl.float64).to(how.real),
    )
    outputs = (advantages, returns)
    if how.mend:
        env = tl.minimum(lane, envs - 1)
        number = first_wrong(begun, reached, env, envs, 1, pieces, how)
        while number < pieces:
            lane = env + tl.cast(number, tl.int64) * envs
            wrong = differs(begun, reached, lane, envs, how)
            end = tl.cast(steps, tl.int64) - tl.cast(number, tl.int64) * piece - warm
            length = tl.minimum(end, piece).to(tl.int32)
            lengths = tl.full((how.lanes,), length, tl.int32)
            lanes = Lanes(env, end, lengths, length, length, (tl.where(wrong, 0, NEVER),))
            state = restored(reached, lane - envs, inputs, env, end, how)
            state = _walked(inputs, outputs, lanes, state, numbers, (), lane, warm, how)
            keep(reached, lane, wrong, inputs, state, how)
            tl.debug_barrier()  # the threads that stored a state are not those that compare it
            number = first_wrong(begun, reached, env, envs, number + 1, pieces, how)
    else:
        if len(boundaries) > 0:
            begin, end = bounds(boundaries, tl.minimum(lane, pieces - 1), steps)
            length = (end - begin).to(tl.int32)
            lanes = Lanes(lane * 0, end, length, tl.max(length, 0), tl.min(length, 0), ())
        elif len(begun) > 0:
            lane = tl.minimum(lane, tl.cast(envs, tl.int64) * pieces - 1)
            end = steps - lane // envs * piece
            length = tl.minimum(end, piece + warm).to(tl.int32)
            lanes = Lanes(
                lane % envs, end, length, tl.max(length, 0), tl.min(length, 0), (tl.where(lane < envs, 0, warm),)
            )
        else:
            length = tl.full((how.lanes,), steps, tl.int32)
            lanes = Lanes(tl.minimum(lane, envs - 1), tl.cast(steps, tl.int64), length, steps, steps, ())
        zero = tl.full((how.lanes,), 0, how.real)
        following = row_or_number(last_values, lanes.env, last_value, how.real)
        trace = row_or_number(last_advantages, lanes.env, last_advantage, how.real)
        if len(begun) > 0:
            trace = tl.where(lane < envs, trace, zero)
            if (len(inputs.value) > 0) and (len(inputs.in_mask) == 0):
                at = inputs.value.data + offset(inputs.value, lanes.env, lanes.end)
                next_value = tl.load(at, mask=lane >= envs, other=0).to(how.real)
                following = tl.where(lane < envs, following, next_value)
        closed = tl.full((how.lanes,), how.kind == "upgo", tl.int1)
        state = State(trace, trace, following, closed, zero, zero.to(tl.float64))
        state = _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how)
        if len(reached) > 0:
            keep(reached, lane, lane >= 0, inputs, state, how)


@jit
def _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how: tl.constexpr):
    """Compute the steps of the lanes from their ends on, store the results, and return the state at the first steps."""
    none = tl.full((how.lanes,), 0, tl.int32)
    whole = lanes.shortest // how.steps * how.steps
    at, to = places(inputs, lanes.env, lanes.end, True), places(outputs, lanes.env, lanes.end, True)
    turn = empty(inputs)
    for i in tl.static_range(how.steps):
        turn, at = load(inputs, at, turn, 0, i, none < whole, True, how)
    for done in range(0, whole, how.steps):
        keep_at(warm, done, begun, lane, inputs, state, how)
        rows = rows_of(inputs, turn, how)
        results = ((), ())
        turn = empty(inputs)
        for i in tl.static_range(how.steps):
            state, advantage, target = step(inputs, rows, i, state, numbers, how)
            results = (results[0] + (advantage,), results[1] + (target,))
            turn, at = load(inputs, at, turn, done + how.steps, i, none + done + how.steps < whole, True, how)
            some = None if len(lanes.stored) == 0 else done >= lanes.stored[0]
            to = store(outputs, to, results, done, i, some, True, how)
    for done in range(whole, lanes.longest, how.tail):
        keep_at(warm, done, begun, lane, inputs, state, how)
        row_at = places(inputs, lanes.env, lanes.end - done, False)
        row_to = places(outputs, lanes.env, lanes.end - done, False)
        rows, results = empty(inputs), ((), ())
        for i in tl.static_range(how.tail):
            rows, row_at = load(inputs, row_at, rows, done, i, done + i < lanes.length, False, how)
        for i in tl.static_range(how.tail):
            state, advantage, target = step(inputs, rows, i, state, numbers, how)
            results = (results[0] + (advantage,), results[1] + (target,))
            some = done + i < lanes.length
            if len(lanes.stored) > 0:
                some = some & (done >= lanes.stored[0])
            row_to = store(outputs, row_to, results, done, i, some, False, how)
    return state
