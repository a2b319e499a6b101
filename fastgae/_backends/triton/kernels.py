"""The recursion on a GPU: each lane of a program computes one env, or one packed sequence, from its last step on.

Every operation is rounded on its own, in the order of the reference in fastgae/_backends/numpy.py. A gate selects
between the sum and the number without the term. That also stands between a product and a sum, which a compiler could
otherwise fuse; the launch forbids fusing too.

A lane loads STEPS steps before it computes them, so that it waits once for the memory and not at every step. In
env-major memory these steps are contiguous: with TILES, a program loads them as one tile, and the compiler transposes
the tile in shared memory.

An input that is missing is None when the kernel is compiled, and its code is left out.
"""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit


class View(NamedTuple):
    """A (T, N) matrix on the device. Strides count elements; a row without time has a step of 0."""

    data: Any  # the tensor of its first element
    step: int  # the distance from step t to t + 1
    env: int  # the distance from env n to n + 1


@jit
def recursion(
    rewards,
    values,
    next_values,  # None: V of the next step in the mask
    last_values,
    final_values,
    terminated,
    truncated,
    mask,  # the caller's mask: V' passes the steps that are not in it
    exists,  # the mask without reset rows: A passes the steps that are not in it
    last_advantages,
    ratios,
    gammas,
    lambdas,
    returns_lambdas,
    boundaries,  # where packed sequences begin; each of them is then an env
    advantages,
    returns,
    steps,
    envs,
    gamma: tl.float64,  # used if there are no gammas, and so on
    lambda_: tl.float64,
    returns_lambda: tl.float64,
    rho_clip: tl.float64,
    c_clip: tl.float64,
    advantage_clip: tl.float64,
    leaky: tl.float64,
    KIND: tl.constexpr,  # "gae", "tail_normalized", "vtrace", "retrace" or "upgo"
    LEAKY: tl.constexpr,  # leaky is not 0
    RETURNS_RECURSION: tl.constexpr,  # the returns have a lambda of their own
    CARRY_OVER: tl.constexpr,  # a skipped step gets A of the next one that exists
    REAL: tl.constexpr,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    TILES: tl.constexpr,
):
    """delta = (r + gamma V') - V;  A = delta + gamma lambda A_next;  R = A + V; a closed gate leaves its term out."""
    lanes = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    ok = lanes < envs
    begins = tl.zeros((LANES,), tl.int64)
    ends = tl.full((LANES,), steps, tl.int64)
    longest = steps
    if boundaries is not None:
        # Boundaries are not checked, because reading them would wait for the GPU. So nothing outside is touched.
        at = boundaries.data + lanes * boundaries.env
        begins = tl.minimum(tl.maximum(tl.load(at, mask=ok, other=0).to(tl.int64), 0), ends)
        ends = tl.minimum(tl.maximum(tl.load(at + boundaries.env, mask=ok, other=0).to(tl.int64), begins), ends)
        longest = tl.max(ends - begins, 0)

    one = tl.full((LANES,), 1, REAL)
    zero = tl.zeros((LANES,), REAL)
    gamma_here = tl.full((LANES,), gamma, tl.float64)
    lambda_here = tl.full((LANES,), lambda_, tl.float64)
    returns_lambda_here = tl.full((LANES,), returns_lambda, tl.float64)
    rho_most = tl.full((LANES,), rho_clip, tl.float64).to(REAL)
    c_most = tl.full((LANES,), c_clip, tl.float64).to(REAL)
    advantage_most = tl.full((LANES,), advantage_clip, tl.float64).to(REAL)
    leak = tl.full((LANES,), leaky, tl.float64).to(REAL)

    # The numbers that a step gets from the next one.
    trace = zero
    returns_trace = zero
    steps_left = zero
    next_trace = tl.zeros((LANES,), tl.float64)  # of retrace: the decay lambda min(ratio, 1) of the next step
    # Nothing after the step counts: it is the last one of a packed sequence, or upgo's next delta is negative.
    closed = tl.full((LANES,), (KIND == "upgo") or (boundaries is not None), tl.int1)
    following = zero
    if last_advantages is not None:
        trace = _row(last_advantages, lanes, 0, ok).to(REAL)
    if last_values is not None:
        following = _row(last_values, lanes, 0, ok).to(REAL)

    for done in range(0, longest, STEPS):
        first = ends - done - STEPS
        reward = _loaded(rewards, lanes, ok, first, begins, ends, REAL, LANES, STEPS, TILES)
        if values is not None:
            value = _loaded(values, lanes, ok, first, begins, ends, REAL, LANES, STEPS, TILES)
        if next_values is not None:
            next_value = _loaded(next_values, lanes, ok, first, begins, ends, REAL, LANES, STEPS, TILES)
        if final_values is not None:
            final_value = _loaded(final_values, lanes, ok, first, begins, ends, REAL, LANES, STEPS, TILES)
        if terminated is not None:
            ended = _loaded(terminated, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if truncated is not None:
            cut = _loaded(truncated, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if mask is not None:
            in_mask = _loaded(mask, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if exists is not None:
            existing = _loaded(exists, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if ratios is not None:
            ratio = _loaded(ratios, lanes, ok, first, begins, ends, REAL, LANES, STEPS, TILES)
        if gammas is not None:
            some_gammas = _loaded(gammas, lanes, ok, first, begins, ends, tl.float64, LANES, STEPS, TILES)
        if lambdas is not None:
            some_lambdas = _loaded(lambdas, lanes, ok, first, begins, ends, tl.float64, LANES, STEPS, TILES)
        if returns_lambdas is not None:
            more_lambdas = _loaded(returns_lambdas, lanes, ok, first, begins, ends, tl.float64, LANES, STEPS, TILES)
        advantage_rows = ()
        returns_rows = ()
        for i in tl.static_range(STEPS - 1, -1, -1):
            if gammas is not None:
                gamma_here = some_gammas[i]
            if lambdas is not None:
                lambda_here = some_lambdas[i]
            if returns_lambdas is not None:
                returns_lambda_here = more_lambdas[i]
            bootstrap = ok
            if terminated is not None:
                bootstrap = bootstrap & (ended[i] == 0)
            is_open = bootstrap
            if truncated is not None:
                is_open = is_open & (cut[i] == 0)
            if (KIND == "upgo") or (boundaries is not None):
                is_open = is_open & ~closed
            if (boundaries is not None) and (last_values is None):
                bootstrap = is_open

            here = zero
            delta = reward[i]
            upcoming = following
            if values is not None:
                here = value[i]
            if next_values is not None:
                upcoming = next_value[i]
            if final_values is not None:
                upcoming = tl.where(cut[i] != 0, final_value[i], upcoming)
                if values is None:
                    bootstrap = bootstrap & (cut[i] != 0)
            if (values is not None) or (final_values is not None):
                delta = tl.where(bootstrap, delta + gamma_here.to(REAL) * upcoming, delta)
            if values is not None:
                delta = delta - here

            if KIND == "retrace":
                decay = (gamma_here * next_trace).to(REAL)
            else:
                decay = (gamma_here * lambda_here).to(REAL)
            if KIND == "tail_normalized":
                left = tl.where(is_open, one + lambda_here.to(REAL) * steps_left, one)
                whole = left * delta
                passed = tl.where(is_open, whole + decay * trace, whole)
                if tl.float64 == REAL:
                    advantage = passed / left
                else:
                    advantage = tl.div_rn(passed, left)  # of float32, `/` is an approximation
                target = advantage
            elif KIND == "vtrace":
                advantage = tl.where(is_open, delta + decay * trace, delta)
                advantage = advantage * _weight(ratio[i], advantage_most, leak, one, LEAKY)
                whole = _weight(ratio[i], rho_most, leak, one, LEAKY) * delta
                slowed = _weight(ratio[i], c_most, leak, one, LEAKY) * decay
                passed = tl.where(is_open, whole + slowed * trace, whole)
                target = passed
            else:
                passed = tl.where(is_open, delta + decay * trace, delta)
                advantage = passed
                target = passed
            if RETURNS_RECURSION:
                decay = (gamma_here * returns_lambda_here).to(REAL)
                target = tl.where(is_open, delta + decay * returns_trace, delta)
            result = target
            if values is not None:
                result = target + here

            if exists is None:
                trace = passed
                returns_trace = target
                if KIND == "tail_normalized":
                    steps_left = left
                if KIND == "retrace":
                    next_trace = lambda_here * tl.where(ratio[i] > 1, one, ratio[i]).to(tl.float64)
                if KIND == "upgo":
                    closed = ~(delta >= 0)
                elif boundaries is not None:
                    closed = ~ok
            else:
                real = existing[i] != 0
                trace = tl.where(real, passed, trace)
                returns_trace = tl.where(real, target, returns_trace)
                if KIND == "tail_normalized":
                    steps_left = tl.where(real, left, steps_left)
                if KIND == "retrace":
                    weight = tl.where(ratio[i] > 1, one, ratio[i]).to(tl.float64)
                    next_trace = tl.where(real, lambda_here * weight, next_trace)
                if KIND == "upgo":
                    closed = tl.where(real, ~(delta >= 0), closed)
                elif boundaries is not None:
                    closed = closed & ~real
                if CARRY_OVER:
                    advantage = trace
                    result = (returns_trace if RETURNS_RECURSION else trace) + here
                else:
                    advantage = tl.where(real, advantage, zero)
                    result = tl.where(real, result, here)
            if values is not None:
                if mask is None:
                    following = here
                else:
                    following = tl.where(in_mask[i] != 0, here, following)
            advantage_rows = (advantage,) + advantage_rows
            returns_rows = (result,) + returns_rows
        if advantages is not None:
            _store(advantages, advantage_rows, lanes, ok, first, begins, LANES, STEPS, TILES)
        if returns is not None:
            _store(returns, returns_rows, lanes, ok, first, begins, LANES, STEPS, TILES)


@jit
def _weight(ratio, most, leak, one, LEAKY: tl.constexpr):
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; in min(), NaN stays NaN and a zero keeps its sign."""
    clipped = tl.where(ratio > most, most, ratio)
    if LEAKY:
        clipped = (one - leak) * clipped + leak * ratio
    return clipped


@jit
def _loaded(
    view,
    lanes,
    ok,
    first,
    begins,
    ends,
    dtype: tl.constexpr,  # None: as it is
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Return STEPS vectors: steps ``first``, ``first + 1``, ... of the lanes; 0 outside of their steps."""
    step = tl.cast(view.step, tl.int64)  # because 32 bits do not hold a distance of several steps
    at = view.data + lanes * view.env + first * step
    rows = ()
    if TILES:
        places = tl.arange(0, STEPS)
        t = first[:, None] + places[None, :]
        inside = ok[:, None] & (t >= begins[:, None]) & (t < ends[:, None])
        tile = tl.load(at[:, None] + places[None, :] * step, mask=inside, other=0)
        if dtype is not None:
            tile = tile.to(dtype)
        parts = (tile,)
        for _ in tl.static_range(6):  # 2^6 steps at most
            if len(parts) < STEPS:
                halves = ()
                for i in tl.static_range(len(parts)):
                    left, right = _halves(parts[i], LANES, STEPS // len(parts))
                    halves = halves + (left, right)
                parts = halves
        for i in tl.static_range(STEPS):
            rows = rows + (tl.reshape(parts[i], (LANES,)),)
    else:
        for i in tl.static_range(STEPS):
            inside = ok & (first + i >= begins) & (first + i < ends)
            row = tl.load(at + i * step, mask=inside, other=0)
            if dtype is not None:
                row = row.to(dtype)
            rows = rows + (row,)
    return rows


@jit
def _halves(tile, LANES: tl.constexpr, WIDTH: tl.constexpr):
    """Return the earlier and the later half of the steps of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, (LANES, 2, WIDTH // 2)), (0, 2, 1)))


@jit
def _store(view, rows, lanes, ok, first, begins, LANES: tl.constexpr, STEPS: tl.constexpr, TILES: tl.constexpr):
    """Store STEPS vectors, the inverse of ``_loaded`` for steps that end where the lanes end or before."""
    step = tl.cast(view.step, tl.int64)  # because 32 bits do not hold a distance of several steps
    at = view.data + lanes * view.env + first * step
    if TILES:
        parts = ()
        for i in tl.static_range(STEPS):
            parts = parts + (tl.reshape(rows[i], (LANES, 1)),)
        for _ in tl.static_range(6):
            if len(parts) > 1:
                wholes = ()
                for i in tl.static_range(len(parts) // 2):
                    wholes = wholes + (_joined(parts[2 * i], parts[2 * i + 1], LANES, 2 * STEPS // len(parts)),)
                parts = wholes
        places = tl.arange(0, STEPS)
        inside = ok[:, None] & (first[:, None] + places[None, :] >= begins[:, None])
        tl.store(at[:, None] + places[None, :] * step, parts[0], mask=inside)
    else:
        for i in tl.static_range(STEPS):
            tl.store(at + i * step, rows[i], mask=ok & (first + i >= begins))


@jit
def _joined(earlier, later, LANES: tl.constexpr, WIDTH: tl.constexpr):
    return tl.reshape(tl.permute(tl.join(earlier, later), (0, 2, 1)), (LANES, WIDTH))


@jit
def steps_without_resets(
    terminated,
    truncated,
    prev_done,
    mask,
    exists,
    steps,
    envs,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Store where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    lanes = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    ok = lanes < envs
    begins = tl.zeros((LANES,), tl.int64)
    ends = tl.full((LANES,), steps, tl.int64)
    reset = ~ok
    if prev_done is not None:
        reset = _row(prev_done, lanes, 0, ok) != 0
    for done in range(0, steps, STEPS):
        first = begins + done
        ended = _loaded(terminated, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if truncated is not None:
            cut = _loaded(truncated, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        if mask is not None:
            in_mask = _loaded(mask, lanes, ok, first, begins, ends, None, LANES, STEPS, TILES)
        for i in tl.static_range(STEPS):
            over = ended[i] != 0
            if truncated is not None:
                over = over | (cut[i] != 0)
            real = ~reset
            if mask is None:
                reset = over
            else:
                real = real & (in_mask[i] != 0)
                reset = tl.where(in_mask[i] != 0, over, reset)
            at = exists.data + lanes * exists.env + (first + i) * exists.step
            tl.store(at, real.to(tl.uint8), mask=ok & (first + i < ends))


@jit
def _place(envs, LANES: tl.constexpr):
    """Return the envs of a program, and its place along time, in a grid of both."""
    across = tl.cdiv(envs, LANES)
    program = tl.program_id(0)
    return (program % across).to(tl.int64) * LANES + tl.arange(0, LANES), (program // across).to(tl.int64)


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
    gamma: tl.float64,
    REAL: tl.constexpr,
    LANES: tl.constexpr,
):
    """G^(1) = r + gamma V';  G_t^(k) = r_t + gamma G_{t+1}^(k-1) where the episode goes on; each program one step t."""
    lanes, begin = _place(envs, LANES)
    ok = lanes < envs
    gamma_here = tl.full((LANES,), gamma, tl.float64).to(REAL)
    total = tl.zeros((LANES,), REAL)
    count = tl.minimum(n, steps - begin)
    for back in range(count):
        t = begin + count - 1 - back + tl.zeros((LANES,), tl.int64)
        if gammas is not None:
            gamma_here = _row(gammas, lanes, t, ok).to(tl.float64).to(REAL)
        bootstrap = ok & (_row(terminated, lanes, t, ok) == 0)
        goes_on = bootstrap & (back > 0)
        if next_values is None:
            is_last = t == steps - 1
            after = _row(last_values, lanes, t, ok & is_last).to(REAL)
            upcoming = tl.where(is_last, after, _row(values, lanes, t + 1, ok & ~is_last).to(REAL))
        else:
            upcoming = _row(next_values, lanes, t, ok).to(REAL)
        if truncated is not None:
            cut = ok & (_row(truncated, lanes, t, ok) != 0)
            goes_on = goes_on & ~cut
            if final_values is not None:
                upcoming = tl.where(cut, _row(final_values, lanes, t, cut).to(REAL), upcoming)
        reward = _row(rewards, lanes, t, ok).to(REAL)
        total = tl.where(bootstrap, reward + gamma_here * tl.where(goes_on, total, upcoming), reward)
    tl.store(returns.data + lanes * returns.env + begin * returns.step, total, mask=ok)


@jit
def _row(view, lanes, t, ok):
    """Return the numbers of step t, and 0 where a lane is not ok."""
    return tl.load(view.data + lanes * view.env + t * view.step, mask=ok, other=0)


@jit
def block_sums(matrix, mask, center, sums, steps, envs, LANES: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Store the float64 sums of x, or of (x - center)^2, over each BLOCK steps, in the order of time."""
    lanes, block = _place(envs, LANES)
    ok = lanes < envs
    begins = tl.full((LANES,), block * BLOCK, tl.int64)
    ends = tl.full((LANES,), tl.minimum(block * BLOCK + BLOCK, steps), tl.int64)
    total = tl.zeros((LANES,), tl.float64)
    middle = total
    if center is not None:
        middle = _row(center, lanes, 0, ok)
    for done in range(0, BLOCK, STEPS):
        first = begins + done
        rows = _loaded(matrix, lanes, ok, first, begins, ends, tl.float64, LANES, STEPS, False)
        if mask is not None:
            in_mask = _loaded(mask, lanes, ok, first, begins, ends, None, LANES, STEPS, False)
        for i in tl.static_range(STEPS):
            counts = ok & (first + i < ends)
            if mask is not None:
                counts = counts & (in_mask[i] != 0)
            term = rows[i]
            if center is not None:
                term = term - middle
                term = term * term
            total = tl.where(counts, total + term, total)
    tl.store(sums.data + lanes * sums.env + block * sums.step, total, mask=ok)


@jit
def rescale(
    matrix,
    mask,
    mean,
    variance,
    std,  # None: computed here from the variance, because torch's root is not rounded correctly on every device
    steps,
    envs,
    eps: tl.float64,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Compute x = (x - mean) / (std + eps) in float64 for the steps in the mask, in place."""
    lanes, block = _place(envs, LANES)
    ok = lanes < envs
    middle = _row(mean, lanes, 0, ok).to(tl.float64)
    if std is None:
        deviation = tl.sqrt(_row(variance, lanes, 0, ok))
    else:
        deviation = _row(std, lanes, 0, ok).to(tl.float64)
    factor = tl.full((LANES,), 1, tl.float64) / (deviation + eps)
    for i in tl.static_range(STEPS):
        t = block * STEPS + i + tl.zeros((LANES,), tl.int64)
        at = matrix.data + lanes * matrix.env + t * matrix.step
        inside = ok & (t < steps)
        if mask is not None:
            inside = inside & (_row(mask, lanes, t, inside) != 0)
        given = tl.load(at, mask=inside, other=0)
        tl.store(at, ((given.to(tl.float64) - middle) * factor).to(given.dtype), mask=inside)
