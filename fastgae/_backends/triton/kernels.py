"""The recursion on a GPU: each lane of a program computes one env from its last step on, or one piece of an env.

Every operation is rounded on its own, in the order of the reference in fastgae/_backends/numpy.py. A gate selects
between the sum and the number without the term. That also stands between a product and a sum, which a compiler could
otherwise fuse; the launch forbids fusing too.

A turn is some steps. While a lane computes a turn, it loads the next one, so it seldom waits for the memory. Where the
steps of an env are adjacent, a turn is one tile, which the compiler transposes in shared memory. Only the first steps
of an env, fewer than a turn, are masked. Lanes beyond the last env compute it again, and store the same bits.

An env may be cut into pieces, each of which is a lane. All but the last in time begin some steps late, with A = 0: the
rounded recursion forgets where it began. The same kernel, launched again to mend, compares the state in which a piece
began with the state that its successor reached. Where they differ, it computes the piece again. So the results are
exact, whatever the numbers are.

An input that is missing is an empty tuple when the kernel is compiled, and its code is left out.
"""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit

COMPARED = tl.constexpr(512)  # pieces that are compared at once
NEVER = tl.constexpr(2**31 - 1)  # a lane that stores nothing does so from this step on


class Rows(NamedTuple):
    """A (T, N) matrix on the device. Strides count elements; a row without time has a step of 0."""

    data: Any  # the tensor of its first element
    step: Any  # the distance from step t to t + 1
    env: Any  # the distance from env n to n + 1


class Tiles(NamedTuple):
    """A (T, N) matrix in which the steps of an env are adjacent."""

    data: Any
    env: Any


class Inputs(NamedTuple):
    """The matrices that a step reads: first numbers, then flags, then coefficients."""

    reward: Any
    value: Any = ()
    next_value: Any = ()  # missing: V of the next step in the mask
    final_value: Any = ()
    ratio: Any = ()
    ended: Any = ()
    cut: Any = ()
    in_mask: Any = ()  # the caller's mask: V' passes the steps that are not in it
    exists: Any = ()  # the mask without reset rows: A passes the steps that are not in it
    last: Any = ()  # the last step of a packed sequence
    gamma: Any = ()
    lambda_: Any = ()
    returns_lambda: Any = ()


FIRST_FLAG, FIRST_COEFFICIENT = tl.constexpr(5), tl.constexpr(10)


class How(NamedTuple):
    """What a kernel is compiled for. Each field is a ``tl.constexpr``."""

    kind: Any  # "gae", "tail_normalized", "vtrace", "retrace" or "upgo"
    leaky: Any  # the constant leaky is not 0
    undiscounted: Any  # gamma and lambda are 1
    returns_recursion: Any  # the returns have a lambda of their own
    carry_over: Any  # a skipped step gets A of the next one that exists
    mend: Any
    real: Any  # the working dtype
    lanes: Any
    steps: Any  # of a turn
    tail: Any  # steps of a masked turn
    kept: Any  # how many numbers ``_kept`` returns


class State(NamedTuple):
    """What a step gets from the next one."""

    trace: Any  # A
    returns_trace: Any  # A with the lambda of the returns
    following: Any  # V
    closed: Any  # A is not used, because a sequence ended, or because upgo's delta is negative
    steps_left: Any  # D of the tail-normalized form
    decay: Any  # lambda min(ratio, 1) of retrace


class Numbers(NamedTuple):
    """The coefficients that are not inputs, in float64, and the constants."""

    gamma: Any
    lambda_: Any
    returns_lambda: Any
    rho_clip: Any
    c_clip: Any
    advantage_clip: Any
    leaky: Any


class Size(NamedTuple):
    """The size of what a program reads at once. Each field is a ``tl.constexpr``."""

    lanes: Any
    steps: Any


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
        number = _first_wrong(begun, reached, env, envs, 1, pieces, how)
        while number < pieces:
            lane = env + tl.cast(number, tl.int64) * envs
            wrong = _differs(begun, reached, lane, envs, how)
            end = tl.cast(steps, tl.int64) - tl.cast(number, tl.int64) * piece - warm
            length = tl.minimum(end, piece).to(tl.int32)
            lengths = tl.full((how.lanes,), length, tl.int32)
            lanes = Lanes(env, end, lengths, length, length, (tl.where(wrong, 0, NEVER),))
            state = _restored(reached, lane - envs, inputs, env, end, how)
            state = _walked(inputs, outputs, lanes, state, numbers, (), lane, warm, how)
            _keep(reached, lane, wrong, inputs, state, how)
            tl.debug_barrier()  # the threads that stored a state are not those that compare it
            number = _first_wrong(begun, reached, env, envs, number + 1, pieces, how)
    else:
        if len(boundaries) > 0:
            # Boundaries are not checked, because reading them would wait for the GPU. So nothing outside is touched.
            at = boundaries.data + tl.minimum(lane, pieces - 1) * boundaries.env
            end = tl.minimum(tl.maximum(tl.load(at + boundaries.env).to(tl.int64), 0), steps)
            length = (end - tl.minimum(tl.maximum(tl.load(at).to(tl.int64), 0), end)).to(tl.int32)
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
        following = _row_or_number(last_values, lanes.env, last_value, how)
        trace = _row_or_number(last_advantages, lanes.env, last_advantage, how)
        if len(begun) > 0:
            trace = tl.where(lane < envs, trace, zero)
            if (len(inputs.value) > 0) and (len(inputs.in_mask) == 0):
                at = inputs.value.data + _offset(inputs.value, lanes.env, lanes.end)
                next_value = tl.load(at, mask=lane >= envs, other=0).to(how.real)
                following = tl.where(lane < envs, following, next_value)
        closed = tl.full((how.lanes,), how.kind == "upgo", tl.int1)
        state = State(trace, trace, following, closed, zero, zero.to(tl.float64))
        state = _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how)
        if len(reached) > 0:
            _keep(reached, lane, lane >= 0, inputs, state, how)


@jit
def _walked(inputs, outputs, lanes, state, numbers, begun, lane, warm, how: tl.constexpr):
    """Compute the steps of the lanes from their ends on, store the results, and return the state at the first steps."""
    none = tl.full((how.lanes,), 0, tl.int32)
    whole = lanes.shortest // how.steps * how.steps
    at, to = _places(inputs, lanes.env, lanes.end, True), _places(outputs, lanes.env, lanes.end, True)
    turn = _empty(inputs)
    for i in tl.static_range(how.steps):
        turn, at = _load(inputs, at, turn, 0, i, none < whole, True, how)
    for done in range(0, whole, how.steps):
        _keep_at(warm, done, begun, lane, inputs, state, how)
        rows = _rows(inputs, turn, how)
        results = ((), ())
        turn = _empty(inputs)
        for i in tl.static_range(how.steps):
            state, advantage, target = _step(inputs, rows, i, state, numbers, how)
            results = (results[0] + (advantage,), results[1] + (target,))
            turn, at = _load(inputs, at, turn, done + how.steps, i, none + done + how.steps < whole, True, how)
            some = None if len(lanes.stored) == 0 else done >= lanes.stored[0]
            to = _store(outputs, to, results, done, i, some, True, how)
    for done in range(whole, lanes.longest, how.tail):
        _keep_at(warm, done, begun, lane, inputs, state, how)
        row_at = _places(inputs, lanes.env, lanes.end - done, False)
        row_to = _places(outputs, lanes.env, lanes.end - done, False)
        rows, results = _empty(inputs), ((), ())
        for i in tl.static_range(how.tail):
            rows, row_at = _load(inputs, row_at, rows, done, i, done + i < lanes.length, False, how)
        for i in tl.static_range(how.tail):
            state, advantage, target = _step(inputs, rows, i, state, numbers, how)
            results = (results[0] + (advantage,), results[1] + (target,))
            some = done + i < lanes.length
            if len(lanes.stored) > 0:
                some = some & (done >= lanes.stored[0])
            row_to = _store(outputs, row_to, results, done, i, some, False, how)
    return state


@jit
def _step(inputs, rows, i: tl.constexpr, state, numbers, how: tl.constexpr):
    """Return the state after step ``i`` of a turn, its advantage and its return."""
    reward, value, next_value, final_value, ratio, ended, cut, in_mask, exists, last, gammas, lambdas, more_lambdas = (
        rows
    )
    one = tl.full((how.lanes,), 1, how.real)
    zero = tl.full((how.lanes,), 0, how.real)
    gamma, lambda_, returns_lambda = numbers.gamma, numbers.lambda_, numbers.returns_lambda
    if len(inputs.gamma) > 0:
        gamma = gammas[i]
    if len(inputs.lambda_) > 0:
        lambda_ = lambdas[i]
    if len(inputs.returns_lambda) > 0:
        returns_lambda = more_lambdas[i]

    bootstrap = None  # the gates; None is always open
    if len(inputs.ended) > 0:
        bootstrap = ended[i] == 0
    is_open = bootstrap
    if len(inputs.cut) > 0:
        is_open = _and(is_open, cut[i] == 0)
    closed_here, following = state.closed, state.following
    if len(inputs.last) > 0:
        closed_here = closed_here | (last[i] != 0)
        if len(inputs.final_value) > 0:
            following = tl.where(last[i] != 0, final_value[i], following)
    if (len(inputs.last) > 0) or (how.kind == "upgo"):
        is_open = _and(is_open, ~closed_here)
    if (len(inputs.last) > 0) and (len(inputs.final_value) == 0):
        bootstrap = is_open

    here, upcoming, delta = zero, following, reward[i]
    if len(inputs.next_value) > 0:
        upcoming = next_value[i]
    if (len(inputs.final_value) > 0) and (len(inputs.cut) > 0):
        upcoming = tl.where(cut[i] != 0, final_value[i], upcoming)
        if len(inputs.value) == 0:
            bootstrap = _and(bootstrap, cut[i] != 0)
    if (len(inputs.value) > 0) or (len(inputs.final_value) > 0):
        delta = _sum(bootstrap, delta, _times(gamma, upcoming, how))
    if len(inputs.value) > 0:
        here = value[i]
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
        advantage = advantage * _weight(ratio[i], numbers.advantage_clip, numbers.leaky, how)
        slowed = _weight(ratio[i], numbers.c_clip, numbers.leaky, how) * decay.to(how.real)
        delta = _weight(ratio[i], numbers.rho_clip, numbers.leaky, how) * delta
        passed = _sum(is_open, delta, slowed * state.trace)
        target = passed
    else:
        passed = _sum(is_open, delta, _times(decay, state.trace, how))
        advantage, target = passed, passed
        if how.kind == "retrace":
            next_decay = lambda_ * tl.where(ratio[i] > 1, one, ratio[i]).to(tl.float64)
    if how.returns_recursion:
        target = _sum(is_open, delta, (gamma * returns_lambda).to(how.real) * state.returns_trace)
    result = target
    if len(inputs.value) > 0:
        result = target + here
        if len(inputs.in_mask) > 0:
            following = tl.where(in_mask[i] != 0, here, following)
        else:
            following = here
    if how.kind == "upgo":
        closed = ~(delta >= 0)
    else:
        closed = state.closed & False
    after = State(passed, target, following, closed, steps_left, next_decay)
    if len(inputs.exists) > 0:
        real = exists[i] != 0
        after = State(
            tl.where(real, passed, state.trace),
            tl.where(real, target, state.returns_trace),
            following,
            tl.where(real, closed, closed_here),
            tl.where(real, steps_left, state.steps_left),
            tl.where(real, next_decay, state.decay),
        )
        if how.carry_over:
            advantage, result = after.trace, after.trace + here
            if how.returns_recursion:
                result = after.returns_trace + here
        else:
            advantage, result = tl.where(real, advantage, zero), tl.where(real, result, here)
    return after, advantage, result


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
    clipped = tl.where(ratio > most, most, ratio)
    if how.leaky:
        clipped = (1 - leaky) * clipped + leaky * ratio
    return clipped


@jit
def _offset(view, env, t):
    """Return how far step t of an env is from the first element."""
    return env * view.env + (t * tl.cast(view.step, tl.int64) if len(view) == 3 else t)


@jit
def _row_or_number(view, env, number, how: tl.constexpr):
    """Return one number for each env."""
    given = tl.full((how.lanes,), number, tl.float64)
    if len(view) > 0:
        given = tl.load(view.data + env * view.env)
    return given.to(how.real)


@jit
def _step_of(view):
    return view.step if len(view) == 3 else 1


@jit
def _places(views, env, end, tiled: tl.constexpr):
    """Return where ``end`` is in each view: offsets in tiles, if they are read, and addresses in rows, which will move.

    A view has three fields if it has rows, two if it has tiles, and none if it is missing.
    """
    places = ()
    for k in tl.static_range(len(views)):
        place = ()
        if len(views[k]) > 0:
            place = _offset(views[k], env, end)
        if len(views[k]) > 1 + tiled:
            place = views[k].data + place
        places = places + (place,)
    return places


@jit
def _empty(views):
    turn = ()
    for _ in tl.static_range(len(views)):
        turn = turn + ((),)
    return turn


@jit
def _as_read(number, k: tl.constexpr, how: tl.constexpr):
    """Return what was read from input k in the dtype in which it is used."""
    flag_or_coefficient = number if k < FIRST_COEFFICIENT else number.to(tl.float64)
    return number.to(how.real) if k < FIRST_FLAG else flag_or_coefficient


@jit
def _tile(view, place, done, how: tl.constexpr):
    """Return the addresses of the turn that begins ``done`` steps before the end."""
    return view.data - (done + how.steps) + (place[:, None] + tl.arange(0, how.steps)[None, :])


@jit
def _load(inputs, at, turn, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Load row ``i`` of the turn that begins ``done`` steps before the end, and its tiles together with row 0."""
    loaded, moved = (), ()
    for k in tl.static_range(len(inputs)):
        part, place = turn[k], at[k]
        if len(inputs[k]) > 1 + tiled:
            place = place - _step_of(inputs[k])
            part = part + (_as_read(tl.load(place, mask=some), k, how),)
        elif (len(inputs[k]) == 2) and (i == 0):
            part = (_as_read(tl.load(_tile(inputs[k], place, done, how), mask=some[:, None]), k, how),)
        loaded, moved = loaded + (part,), moved + (place,)
    return loaded, moved


@jit
def _rows(inputs, turn, how: tl.constexpr):
    """Return the rows of a turn, the last step first."""
    rows = ()
    for k in tl.static_range(len(inputs)):
        if len(inputs[k]) == 2:
            rows = rows + (_split(turn[k][0], how),)
        else:
            rows = rows + (turn[k],)
    return rows


@jit
def _split(tile, how: tl.constexpr):
    """Return the columns of a tile, the last one first."""
    parts = (tile,)
    for _ in tl.static_range(6):  # 2^6 steps at most
        if len(parts) < how.steps:
            halves = ()
            for i in tl.static_range(len(parts)):
                half = tl.reshape(parts[i], (how.lanes, 2, how.steps // len(parts) // 2))
                earlier, later = tl.split(tl.permute(half, (0, 2, 1)))
                halves = halves + (later, earlier)
            parts = halves
    columns = ()
    for i in tl.static_range(how.steps):
        columns = columns + (tl.reshape(parts[i], (how.lanes,)),)
    return columns


@jit
def _joined(columns, how: tl.constexpr):
    """Return the tile of some columns, the inverse of ``_split``."""
    parts = ()
    for i in tl.static_range(how.steps):
        parts = parts + (tl.reshape(columns[i], (how.lanes, 1)),)
    for _ in tl.static_range(6):
        if len(parts) > 1:
            wholes = ()
            for i in tl.static_range(len(parts) // 2):
                both = tl.permute(tl.join(parts[2 * i + 1], parts[2 * i]), (0, 2, 1))
                wholes = wholes + (tl.reshape(both, (how.lanes, 2 * how.steps // len(parts))),)
            parts = wholes
    return parts[0]


@jit
def _store(outputs, to, results, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Store row ``i`` of a turn, and its tiles together with its first step, for some lanes; None is all lanes."""
    moved = ()
    for k in tl.static_range(2):
        place = to[k]
        if len(outputs[k]) > 1 + tiled:
            place = place - _step_of(outputs[k])
            tl.store(place, results[k][i], mask=some)
        elif (len(outputs[k]) == 2) and (i == how.steps - 1):
            lanes = None if some is None else some[:, None]
            tl.store(_tile(outputs[k], place, done, how), _joined(results[k], how), mask=lanes)
        moved = moved + (place,)
    return moved


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
def _keep(states, lane, some, inputs, state, how: tl.constexpr):
    kept = _kept(inputs, state, how)
    for s in tl.static_range(how.kept):
        tl.store(states.data + _offset(states, lane, s), kept[s], mask=some)


@jit
def _keep_at(warm, done, begun, lane, inputs, state, how: tl.constexpr):
    """Keep the state after the warm-up."""
    if len(begun) > 0:  # noqa: SIM102 (only this condition is known when it is compiled)
        if done == warm:
            _keep(begun, lane, lane >= 0, inputs, state, how)


@jit
def _restored(states, lane, inputs, env, end, how: tl.constexpr):
    """Return the state that was kept."""
    zero = tl.full((how.lanes,), 0, how.real)
    kept = ()
    for s in tl.static_range(how.kept):
        kept = kept + (tl.load(states.data + _offset(states, lane, s)),)
    trace, returns_trace, following, steps_left = kept[0].to(how.real), zero, zero, zero
    closed, decay = lane < 0, zero.to(tl.float64)
    if how.returns_recursion:
        returns_trace = kept[1].to(how.real)
    if len(inputs.in_mask) > 0:
        following = kept[1 + how.returns_recursion].to(how.real)
    elif len(inputs.value) > 0:
        following = tl.load(inputs.value.data + _offset(inputs.value, env, end)).to(how.real)
    if (how.kind == "upgo") or (len(inputs.last) > 0):
        closed = kept[how.kept - 1] != 0
    if how.kind == "tail_normalized":
        steps_left = kept[how.kept - 1].to(how.real)
    if how.kind == "retrace":
        decay = kept[how.kept - 1]
    return State(trace, returns_trace, following, closed, steps_left, decay)


@jit
def _differs(begun, reached, lane, envs, how: tl.constexpr):
    """Return which pieces did not begin in the state that the piece after them in time reached."""
    differs = lane < 0
    for s in tl.static_range(how.kept):
        one = tl.load(begun.data + _offset(begun, lane, s))
        other = tl.load(reached.data + _offset(reached, lane - envs, s))
        differs = differs | (one.to(tl.int64, bitcast=True) != other.to(tl.int64, bitcast=True))
    return differs


@jit
def _first_wrong(begun, reached, env, envs, some, pieces, how: tl.constexpr):
    """Return the first number from ``some`` on of a piece that one of the envs must compute again, or ``pieces``."""
    some, first = tl.cast(some, tl.int32), tl.cast(pieces, tl.int32)
    while (some < pieces) & (first == pieces):
        number = tl.minimum(some + tl.arange(0, COMPARED // how.lanes), pieces - 1)[:, None]
        wrong = _differs(begun, reached, number.to(tl.int64) * envs + env[None, :], envs, how)
        first = tl.minimum(first, tl.min(tl.min(tl.where(wrong, number, pieces), 1), 0))
        some += COMPARED // how.lanes
    return first


@jit
def sequence_steps(
    boundaries,
    last_values,
    coefficients,  # one for each sequence
    last,
    final_values,
    coefficients_of_steps,
    steps,
    last_value: tl.float64,
    REAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store for each step of a packed sequence whether it is the last one, V after it, and its coefficients."""
    number = tl.program_id(0).to(tl.int64)
    at = boundaries.data + number * boundaries.env
    begin = tl.minimum(tl.maximum(tl.load(at).to(tl.int64), 0), steps)
    end = tl.minimum(tl.maximum(tl.load(at + boundaries.env).to(tl.int64), begin), steps)
    for first in range(begin, end, BLOCK):
        t = first + tl.arange(0, BLOCK)
        tl.store(last.data + t, (t == end - 1).to(tl.uint8), mask=t < end)
        for k in tl.static_range(len(coefficients)):
            here = tl.load(coefficients[k].data + number * coefficients[k].env).to(tl.float64)
            tl.store(coefficients_of_steps[k].data + t, here + tl.full((BLOCK,), 0, tl.float64), mask=t < end)
        if len(final_values) > 0:
            value = tl.full((BLOCK,), last_value, tl.float64).to(REAL)
            if len(last_values) > 0:
                value = tl.full((BLOCK,), 0, REAL) + tl.load(last_values.data + number * last_values.env).to(REAL)
            tl.store(final_values.data + t, value, mask=t == end - 1)


@jit
def steps_without_resets(terminated, truncated, prev_done, mask, exists, steps, envs, was_done, size: tl.constexpr):
    """Store where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    lane = tl.program_id(0).to(tl.int64) * size.lanes + tl.arange(0, size.lanes)
    env = tl.minimum(lane, envs - 1)
    reset = (env < 0) | (was_done != 0)
    if len(prev_done) > 0:
        reset = tl.load(prev_done.data + env * prev_done.env) != 0
    for done in range(0, steps, size.steps):
        left = steps - done + tl.full((size.lanes,), 0, tl.int32)
        ended = _rows_from(terminated, env, done, left, size)
        cut = _rows_from(truncated, env, done, left, size)
        in_mask = _rows_from(mask, env, done, left, size)
        for i in tl.static_range(size.steps):
            over = ended[i] != 0
            if len(truncated) > 0:
                over = over | (cut[i] != 0)
            real = ~reset
            if len(mask) > 0:
                real = real & (in_mask[i] != 0)
                over = tl.where(in_mask[i] != 0, over, reset)
            reset = over
            tl.store(exists.data + _offset(exists, env, tl.cast(done, tl.int64) + i), real.to(tl.uint8), mask=i < left)


@jit
def _rows_from(view, env, first, left, size: tl.constexpr):
    """Return the steps ``first``, ``first + 1``, ... of each lane; the first ``left`` of them exist."""
    rows = ()
    if len(view) == 2:
        columns = tl.arange(0, size.steps)[None, :]
        tile_at = view.data + (_offset(view, env, tl.cast(first, tl.int64))[:, None] + columns)
        backwards = _split(tl.load(tile_at, mask=columns < left[:, None], other=0), size)
        for i in tl.static_range(size.steps):
            rows = rows + (backwards[size.steps - 1 - i],)
    elif len(view) == 3:
        at = view.data + _offset(view, env, tl.cast(first, tl.int64))
        for i in tl.static_range(size.steps):
            rows = rows + (tl.load(at, mask=i < left, other=0),)
            at = at + view.step
    return rows


@jit
def n_step_returns(
    rewards,
    values,
    next_values,
    last_values,
    final_values,
    terminated,
    truncated,
    gammas,
    returns,
    steps,
    envs,
    n,
    last_value: tl.float64,
    gamma: tl.float64,
    REAL: tl.constexpr,
    LANES: tl.constexpr,
):
    """G^(1) = r + gamma V';  G_t^(k) = r_t + gamma G_{t+1}^(k-1) where the episode goes on; each program one step t."""
    across = tl.cdiv(envs, LANES)
    lane = (tl.program_id(0) % across).to(tl.int64) * LANES + tl.arange(0, LANES)
    env, begin = tl.minimum(lane, envs - 1), (tl.program_id(0) // across).to(tl.int64)
    gamma_here = tl.full((LANES,), gamma, tl.float64).to(REAL)
    after = tl.full((LANES,), last_value, tl.float64).to(REAL)
    if len(last_values) > 0:
        after = tl.load(last_values.data + env * last_values.env).to(REAL)
    total = after
    count = tl.minimum(n, steps - begin)
    for back in range(count):
        t = begin + count - 1 - back
        if len(gammas) > 0:
            gamma_here = _row(gammas, env, t).to(tl.float64).to(REAL)
        bootstrap = env >= 0
        if len(terminated) > 0:
            bootstrap = _row(terminated, env, t) == 0
        goes_on = bootstrap & (back > 0)
        if len(next_values) > 0:
            upcoming = _row(next_values, env, t).to(REAL)
        else:
            is_last = t == steps - 1
            upcoming = tl.where(is_last, after, _row(values, env, t + tl.where(is_last, 0, 1)).to(REAL))
        if len(truncated) > 0:
            cut = _row(truncated, env, t) != 0
            goes_on = goes_on & ~cut
            if len(final_values) > 0:
                upcoming = tl.where(cut, _row(final_values, env, t).to(REAL), upcoming)
        reward = _row(rewards, env, t).to(REAL)
        total = tl.where(bootstrap, reward + gamma_here * tl.where(goes_on, total, upcoming), reward)
    tl.store(returns.data + _offset(returns, env, begin), total)


@jit
def _row(view, env, t):
    return tl.load(view.data + _offset(view, env, t))


@jit
def block_sums(matrix, mask, center, sums, counts, steps, envs, BLOCK: tl.constexpr, size: tl.constexpr):
    """Store the float64 sums of x, or of (x - center)^2, over each BLOCK steps, in the order of time; each a lane."""
    blocks = tl.cdiv(steps, BLOCK)
    lane = tl.program_id(0).to(tl.int64) * size.lanes + tl.arange(0, size.lanes)
    lane = tl.minimum(lane, tl.cast(blocks, tl.int64) * envs - 1)
    env, begin = lane % envs, lane // envs * BLOCK
    total = tl.full((size.lanes,), 0, tl.float64)
    count, middle = total, total
    if len(center) > 0:
        middle = tl.load(center.data + env * center.env)
    for done in range(0, BLOCK, size.steps):
        left = tl.minimum(steps - begin - done, size.steps).to(tl.int32)
        rows = _rows_from(matrix, env, begin + done, left, size)
        in_mask = _rows_from(mask, env, begin + done, left, size)
        for i in tl.static_range(size.steps):
            counts_here = i < left
            if len(mask) > 0:
                counts_here = counts_here & (in_mask[i] != 0)
                count = tl.where(counts_here, count + 1, count)
            term = rows[i].to(tl.float64)
            if len(center) > 0:
                term = term - middle
                term = term * term
            total = tl.where(counts_here, total + term, total)
    tl.store(sums.data + lane, total)
    if len(counts) > 0:
        tl.store(counts.data + lane, count)


@jit
def means(sums, counts, result, steps, blocks, envs, ddof, PER_ENV: tl.constexpr, BLOCK: tl.constexpr):
    """Store sum / (count - ddof) of each env, or of all: one program adds in the order of fastgae/_moments.py."""
    _fold(sums.data, blocks, envs, BLOCK)
    if len(counts) > 0:
        _fold(counts.data, blocks, envs, BLOCK)
    quotients = tl.cast(envs, tl.int64)
    if not PER_ENV:
        _fold(sums.data, envs, 1, BLOCK)
        if len(counts) > 0:
            _fold(counts.data, envs, 1, BLOCK)
        quotients = quotients * 0 + 1
    for first in range(0, quotients, BLOCK):
        place = first + tl.arange(0, BLOCK)
        count = (tl.cast(steps, tl.int64) * envs // quotients).to(tl.float64) + tl.full((BLOCK,), 0, tl.float64)
        if len(counts) > 0:
            count = tl.load(counts.data + place, mask=place < quotients, other=0)
        total = tl.load(sums.data + place, mask=place < quotients, other=0)
        most = tl.cast(ddof, tl.int64).to(tl.float64)
        mean = tl.where(count > most, total / (count - most), float("nan"))
        tl.store(result.data + place, mean, mask=place < quotients)


@jit
def _fold(rows, count, width, BLOCK: tl.constexpr):
    """Add one half of ``count`` rows to the other, again and again, until one row has the sum."""
    left, width = tl.cast(count, tl.int64), tl.cast(width, tl.int64)
    if count != 1:  # Triton 3.6 cannot compile a loop which it knows to have no turn
        while left > 1:
            half = left // 2 * width
            for first in range(0, half, BLOCK):
                place = first + tl.arange(0, BLOCK)
                one = tl.load(rows + place, mask=place < half, other=0)
                other = tl.load(rows + half + place, mask=place < half, other=0)
                tl.store(rows + place, one + other, mask=place < half)
            tl.debug_barrier()
            odd = left * width - 2 * half  # the last row, which has no other, moves up
            for first in range(0, odd, BLOCK):
                place = first + tl.arange(0, BLOCK)
                last = tl.load(rows + 2 * half + place, mask=place < odd, other=0)
                tl.store(rows + half + place, last, mask=place < odd)
            tl.debug_barrier()
            left = left - left // 2


@jit
def rescale(
    source,
    target,
    mask,
    mean,
    variance,
    std,  # missing: computed here from the variance, because torch's root is not rounded correctly on every device
    outer,
    inner,
    mean_number: tl.float64,
    std_number: tl.float64,
    eps: tl.float64,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
):
    """Compute x = (x - mean) / (std + eps) in float64 for the steps in the mask, and 0 elsewhere.

    The strides of every matrix here are those of the axes ``outer`` and ``inner``; the inner one is contiguous.
    """
    o, i = _in_both(outer, inner, OUTER, INNER)
    inside = (o < outer) & (i < inner)
    middle, deviation = mean_number, std_number
    if len(mean) > 0:
        middle = _element(mean, o, i, inside).to(tl.float64)
    if len(variance) > 0:
        deviation = tl.sqrt(_element(variance, o, i, inside))
    if len(std) > 0:
        deviation = _element(std, o, i, inside).to(tl.float64)
    given = _element(source, o, i, inside)
    scaled = (given.to(tl.float64) - middle) * (tl.full((OUTER, INNER), 1, tl.float64) / (deviation + eps))
    if len(mask) > 0:
        scaled = tl.where(_element(mask, o, i, inside) != 0, scaled, 0.0)
    at = target.data + o * target.step + i * target.env
    tl.store(at, scaled.to(target.data.dtype.element_ty), mask=inside)


@jit
def _in_both(outer, inner, OUTER: tl.constexpr, INNER: tl.constexpr):
    """Return the elements of a program along both axes of a matrix."""
    across = tl.cdiv(inner, INNER)
    o = (tl.program_id(0) // across).to(tl.int64) * OUTER + tl.arange(0, OUTER)
    i = (tl.program_id(0) % across).to(tl.int64) * INNER + tl.arange(0, INNER)
    return o[:, None], i[None, :]


@jit
def _element(matrix, o, i, inside):
    return tl.load(matrix.data + o * matrix.step + i * matrix.env, mask=inside, other=0)
