"""Returns of n steps."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.views import offset, row, row_or_number


@jit
def n_step_returns(
    inputs,
    last_values,
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
    after = row_or_number(last_values, env, last_value, REAL)
    total = after
    count = tl.minimum(n, steps - begin)
    for back in range(count):
        t = begin + count - 1 - back
        if len(inputs.gamma) > 0:
            gamma_here = row(inputs.gamma, env, t).to(tl.float64).to(REAL)
        bootstrap = env >= 0
        if len(inputs.ended) > 0:
            bootstrap = row(inputs.ended, env, t) == 0
        goes_on = bootstrap & (back > 0)
        if len(inputs.next_value) > 0:
            upcoming = row(inputs.next_value, env, t).to(REAL)
        else:
            is_last = t == steps - 1
            upcoming = tl.where(is_last, after, row(inputs.value, env, t + tl.where(is_last, 0, 1)).to(REAL))
        if len(inputs.cut) > 0:
            cut = row(inputs.cut, env, t) != 0
            goes_on = goes_on & ~cut
            if len(inputs.final_value) > 0:
                upcoming = tl.where(cut, row(inputs.final_value, env, t).to(REAL), upcoming)
        reward = row(inputs.reward, env, t).to(REAL)
        total = tl.where(bootstrap, reward + gamma_here * tl.where(goes_on, total, upcoming), reward)
    tl.store(returns.data + offset(returns, env, begin), total)
