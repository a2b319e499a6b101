"""Mean and variance, in the order of additions of fastgae/_moments.py, and what they shift and scale."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.views import rows_from


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
        rows = rows_from(matrix, env, begin + done, left, size)
        in_mask = rows_from(mask, env, begin + done, left, size)
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
