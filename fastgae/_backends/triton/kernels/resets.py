"""The steps between two episodes, which do not exist."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.views import offset, rows_from


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
        ended = rows_from(terminated, env, done, left, size)
        cut = rows_from(truncated, env, done, left, size)
        in_mask = rows_from(mask, env, done, left, size)
        for i in tl.static_range(size.steps):
            over = ended[i] != 0
            if len(truncated) > 0:
                over = over | (cut[i] != 0)
            real = ~reset
            if len(mask) > 0:
                real = real & (in_mask[i] != 0)
                over = tl.where(in_mask[i] != 0, over, reset)
            reset = over
            tl.store(exists.data + offset(exists, env, tl.cast(done, tl.int64) + i), real.to(tl.uint8), mask=i < left)
