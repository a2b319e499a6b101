"""What each step of packed sequences gets from its sequence."""

import triton.language as tl
from triton import jit


@jit
def bounds(boundaries, number, steps):
    """Return where a sequence begins and ends: inside of the arrays, because nobody checks what the boundaries are."""
    at = boundaries.data + number * boundaries.env
    begin = tl.minimum(tl.maximum(tl.load(at).to(tl.int64), 0), steps)
    end = tl.minimum(tl.maximum(tl.load(at + boundaries.env).to(tl.int64), begin), steps)
    return begin, end


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
    begin, end = bounds(boundaries, number, steps)
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
