"""The steps between two episodes, which do not exist."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.turns import following
from fastgae._backends.triton.kernels.views import offset


@jit
def steps_without_resets(inputs, views, steps, envs, was_done, size: tl.constexpr):
    """Store where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    prev_done, exists = views
    lane = tl.program_id(0).to(tl.int64) * size.lanes + tl.arange(0, size.lanes)
    env = tl.minimum(lane, envs - 1)
    reset = (env < 0) | (was_done != 0)
    if len(prev_done) > 0:
        reset = tl.load(prev_done.data + env * prev_done.env) != 0
    for done in range(0, steps, size.steps):
        left = steps - done + tl.full((size.lanes,), 0, tl.int32)
        rows = following(inputs, env, done, left, done + size.steps <= steps, size)
        for i in tl.static_range(size.steps - 1, -1, -1):
            over = rows.terminated[i] != 0
            if len(inputs.truncated) > 0:
                over = over | (rows.truncated[i] != 0)
            real = ~reset
            if len(inputs.mask) > 0:
                real = real & (rows.mask[i] != 0)
                over = tl.where(rows.mask[i] != 0, over, reset)
            reset = over
            number = size.steps - 1 - i
            at = exists.data + offset(exists, env, tl.cast(done, tl.int64) + number)
            tl.store(at, real.to(tl.uint8), mask=number < left)
