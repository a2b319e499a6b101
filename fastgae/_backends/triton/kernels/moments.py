"""Mean and variance, in the order of additions of fastgae/_engine/moments.py, and what they shift and scale."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import Inputs
from fastgae._backends.triton.kernels.turns import load_rows, load_turn, places, rows_of_turn
from fastgae._backends.triton.kernels.views import offset

STAGES = tl.constexpr(3)  # turns of which the numbers are asked for, together


@jit
def block_sums(inputs, center, targets, steps, envs, terms, BLOCK: tl.constexpr, size: tl.constexpr):
    """Store the float64 sums of x, or of (x - center)^2, over each BLOCK steps, in the order of time; each a lane."""
    blocks = tl.cdiv(steps, BLOCK)
    lane = tl.program_id(0).to(tl.int64) * size.lanes + tl.arange(0, size.lanes)
    lane = tl.minimum(lane, tl.cast(blocks, tl.int64) * envs - 1)
    env, begin = lane % envs, lane // envs * BLOCK
    length = tl.minimum(steps - begin, BLOCK).to(tl.int32)
    total = tl.full((size.lanes,), 0, tl.float64)
    count, middle = total, total
    if len(center) > 0:
        middle = _mean(center, env, 0, terms, 0)
    at = places(inputs, env, begin + size.steps)
    whole = length // size.steps * size.steps
    for done in tl.range(0, tl.max(whole, 0), size.steps, num_stages=STAGES):
        turn, left = load_turn(inputs, at, -done, done < whole, size), whole - done
        total, count = _added(inputs, rows_of_turn(inputs, turn, size), center, middle, left, total, count, size)
    at, left = places(inputs, env, begin + whole + size.steps), length - whole
    if tl.max(left, 0) > 0:
        rows = load_rows(inputs, at, size.steps - left, left * 0 + size.steps, size.steps, size)
        total, count = _added(inputs, rows, center, middle, left, total, count, size)
    sums, counts = targets
    tl.store(sums.data + lane, total)
    if len(counts) > 0:
        tl.store(counts.data + lane, count)


@jit
def _added(inputs, rows, center, middle, left, total, count, size: tl.constexpr):
    """Return the sum and the count after the steps of rows, of which ``left`` exist; the last one comes first."""
    rows = Inputs(*rows)
    for i in tl.static_range(size.steps - 1, -1, -1):
        counts_here = size.steps - 1 - i < left
        if len(inputs.mask) > 0:
            counts_here = counts_here & (rows.mask[i] != 0)
            count = tl.where(counts_here, count + 1, count)
        term = rows.rewards[i]
        if len(center) > 0:
            term = term - middle
            term = term * term
        total = tl.where(counts_here, total + term, total)
    return total, count


@jit
def _mean(given, env, t, terms, ddof):
    """Return sum / (count - ddof) from a sum and its count; without a count, there are as many terms for all envs."""
    total, counts = given
    at = 0  # of the only number, if there are no strides
    if len(total) > 1:
        at = offset(total, env, t)
    count = tl.cast(terms, tl.float64)
    if len(counts) > 0:
        count = tl.load(counts[0] + at)
    most = tl.cast(ddof, tl.int64).to(tl.float64)
    return tl.where(count > most, tl.load(total[0] + at).to(tl.float64) / (count - most), float("nan"))


@jit
def fold(sources, targets, count, width, LANES: tl.constexpr, LEVELS: tl.constexpr):
    """Add one half of ``count`` rows to the other LEVELS times, each sum in a lane; a row without another moves up."""
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    count = tl.cast(count, tl.int64)
    exists = lane < _half(count, LEVELS) * width
    for k in tl.static_range(len(sources)):
        if len(sources[k]) > 0:
            column = sources[k].data + lane % width
            tl.store(targets[k].data + lane, _folded(column, lane // width, exists, count, width, LEVELS), mask=exists)


@jit
def _folded(column, row, exists, count, width, level: tl.constexpr):
    """Return the number in a row once the rows have been added so many times."""
    if level == 0:
        total = tl.load(column + row * width, mask=exists, other=0)
    else:
        pairs = _half(count, level - 1) // 2
        paired = row < pairs
        one = _folded(column, tl.where(paired, row, 2 * pairs), exists, count, width, level - 1)
        other = _folded(column, row + pairs, exists & paired, count, width, level - 1)
        total = tl.where(exists & paired, one + other, one)
    return total


@jit
def _half(count, times: tl.constexpr):
    """Return how many of ``count`` rows are left once they have been added so many times."""
    return (count + (1 << times) - 1) >> times


@jit
def rescale(
    views,
    mean,
    variance,  # of which the root is taken here, because torch's is not rounded correctly on every device
    steps,
    envs,
    terms,
    ddof,
    mean_number: tl.float64,
    std_number: tl.float64,
    eps: tl.float64,
    ENV_MAJOR: tl.constexpr,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
):
    """Compute x = (x - mean) / (std + eps) in float64 for the steps in the mask, and 0 elsewhere.

    The inner axis of a block is the one that is contiguous in rewards.
    """
    source, target, mask, std = views
    outer, inner = (envs, steps) if ENV_MAJOR else (steps, envs)
    across = tl.cdiv(inner, INNER)
    o = ((tl.program_id(0) // across).to(tl.int64) * OUTER + tl.arange(0, OUTER))[:, None]
    i = ((tl.program_id(0) % across).to(tl.int64) * INNER + tl.arange(0, INNER))[None, :]
    inside = (o < outer) & (i < inner)
    env, t = (o, i) if ENV_MAJOR else (i, o)
    some_env, some_t = tl.minimum(env, envs - 1), tl.minimum(t, steps - 1)
    middle, deviation = mean_number, std_number
    if len(mean) > 0:
        middle = _mean(mean, some_env, some_t, terms, 0)
    if len(variance) > 0:
        deviation = tl.sqrt(_mean(variance, some_env, some_t, terms, ddof))
    if len(std) > 0:
        deviation = _element(std, env, t, inside).to(tl.float64)
    given = _element(source, env, t, inside)
    scaled = (given.to(tl.float64) - middle) * (tl.full((OUTER, INNER), 1, tl.float64) / (deviation + eps))
    if len(mask) > 0:
        scaled = tl.where(_element(mask, env, t, inside) != 0, scaled, 0.0)
    tl.store(target.data + offset(target, env, t), scaled.to(target.data.dtype.element_ty), mask=inside)


@jit
def _element(matrix, env, t, inside):
    return tl.load(matrix.data + offset(matrix, env, t), mask=inside, other=0)
