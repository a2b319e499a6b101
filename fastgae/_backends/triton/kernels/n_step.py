"""Returns of n steps."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.views import offset, row, row_or_number


@jit
def n_step_returns(
    inputs,
    ends_and_returns,
    steps,
    envs,
    n,
    last_value: tl.float64,
    gamma: tl.float64,
    REAL: tl.constexpr,
    LANES: tl.constexpr,
):
    """G^(1) = r + gamma V';  G_t^(k) = r_t + gamma G_{t+1}^(k-1) where the episode goes on; each program one step t."""
    last_values, returns = ends_and_returns
    across = tl.cdiv(envs, LANES)
    lane = (tl.program_id(0) % across).to(tl.int64) * LANES + tl.arange(0, LANES)
    env, begin = tl.minimum(lane, envs - 1), (tl.program_id(0) // across).to(tl.int64)
    gamma_here = tl.full((LANES,), gamma, tl.float64).to(REAL)
    following = row_or_number(last_values, env, last_value, REAL)  # V after the last step, or of the next in the mask
    total, count = following, tl.minimum(n, steps - begin)
    begun, here = env < 0, env >= 0
    found = tl.full((LANES,), 0, tl.int64)  # how many steps exist from t = begin to t
    if len(inputs.exists) > 0:
        count = begin - begin
        while (begin + count < steps) & (tl.min(found, 0) <= n):  # one more than n, because V' of the last one is its V
            found += (row(inputs.exists, env, begin + count) != 0).to(tl.int64)
            count += 1
    for back in range(count):
        t = begin + count - 1 - back
        if len(inputs.gamma) > 0:
            gamma_here = row(inputs.gamma, env, t).to(tl.float64).to(REAL)
        bootstrap = env >= 0
        if len(inputs.terminated) > 0:
            bootstrap = row(inputs.terminated, env, t) == 0
        goes_on, upcoming = bootstrap & begun, following
        if len(inputs.next_values) > 0:
            upcoming = row(inputs.next_values, env, t).to(REAL)
        elif len(inputs.mask) > 0:
            following = tl.where(row(inputs.mask, env, t) != 0, row(inputs.value, env, t).to(REAL), following)
        else:
            is_last = t + 1 == steps
            upcoming = tl.where(is_last, following, row(inputs.value, env, tl.where(is_last, 0, t + 1)).to(REAL))
        if len(inputs.truncated) > 0:
            cut = row(inputs.truncated, env, t) != 0
            goes_on = goes_on & ~cut
            if len(inputs.final_values) > 0:
                upcoming = tl.where(cut, row(inputs.final_values, env, t).to(REAL), upcoming)
        reward = row(inputs.rewards, env, t).to(REAL)
        longer = tl.where(bootstrap, reward + gamma_here * tl.where(goes_on, total, upcoming), reward)
        if len(inputs.exists) > 0:
            exists = row(inputs.exists, env, t) != 0
            here = exists & (found <= n)
            found -= exists.to(tl.int64)
        total = tl.where(here, longer, total)
        begun = begun | here
    if len(inputs.exists) > 0:
        total = tl.where(row(inputs.exists, env, begin) != 0, total, row(inputs.value, env, begin).to(REAL))
    tl.store(returns.data + offset(returns, env, begin), total)
