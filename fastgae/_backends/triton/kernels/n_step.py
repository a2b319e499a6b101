"""Returns of n steps."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.views import offset, row, row_or_number


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
    after = row_or_number(last_values, env, last_value, REAL)
    total = after
    count = tl.minimum(n, steps - begin)
    for back in range(count):
        t = begin + count - 1 - back
        if len(gammas) > 0:
            gamma_here = row(gammas, env, t).to(tl.float64).to(REAL)
        bootstrap = env >= 0
        if len(terminated) > 0:
            bootstrap = row(terminated, env, t) == 0
        goes_on = bootstrap & (back > 0)
        if len(next_values) > 0:
            upcoming = row(next_values, env, t).to(REAL)
        else:
            is_last = t == steps - 1
            upcoming = tl.where(is_last, after, row(values, env, t + tl.where(is_last, 0, 1)).to(REAL))
        if len(truncated) > 0:
            cut = row(truncated, env, t) != 0
            goes_on = goes_on & ~cut
            if len(final_values) > 0:
                upcoming = tl.where(cut, row(final_values, env, t).to(REAL), upcoming)
        reward = row(rewards, env, t).to(REAL)
        total = tl.where(bootstrap, reward + gamma_here * tl.where(goes_on, total, upcoming), reward)
    tl.store(returns.data + offset(returns, env, begin), total)
