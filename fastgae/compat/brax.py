"""Brax: ``compute_gae`` of its PPO."""

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.estimators.gae import gae


@anywhere("rewards: T ...", bootstrap_value="...")
def compute_gae(
    truncation: Flags,
    termination: Flags,
    rewards: Like[ArrayT],
    values: Numbers,
    bootstrap_value: Numbers,
    lambda_: Coefficient = 1.0,
    discount: Coefficient = 0.99,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute value targets, and advantages by one more temporal-difference step on the targets.

    ::

        delta_t = (r_t + discount V_{t+1}) - V_t             the bootstrap only where not terminated_t
        vs_t    = V_t + A_t,  A_t = delta_t + discount lambda A_{t+1},  the second term only where not terminated_t
        adv_t   = (r_t + discount vs_{t+1}) - V_t            the bootstrap only where not terminated_t
        vs_t    = V_t,  A_t = adv_t = 0                      where truncated_t

    V_T = vs_T = ``bootstrap_value``. Row t of the flags belongs to step t. A truncated step is dropped: the step before
    it bootstraps from its V, but takes no advantage from it.

    Parameters
    ----------
    truncation, termination : array of shape (T, B), 0 and 1
    rewards, values : array of shape (T, B)
    bootstrap_value : array of shape (B,)

    Returns
    -------
    (vs, advantages)
        Arrays like ``rewards``, without gradients. They agree with Brax's to 1e-5, because XLA may compute a product
        and a sum with one rounding, and multiplies discount and lambda in float32.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    xp = namespace_of(rewards)
    dropped = truncation != 0
    ended = dropped | (termination != 0)
    # A dropped step becomes a termination with reward V, so that delta and A are 0 there.
    reward = xp.where(dropped, values, rewards)
    targets = gae(reward, values, ended, last_values=bootstrap_value, gamma=discount, gae_lambda=lambda_).returns
    following = xp.concatenate([targets, bootstrap_value[None]])[1:]
    one_step = gae(reward, values, ended, xp.ones_like(ended), next_values=following, gamma=discount)
    return targets, one_step.advantages
