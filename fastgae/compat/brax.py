"""Brax: ``compute_gae`` of its PPO."""

from typing import Any

import numpy as np

from fastgae._interop import like, numbers_of, numpy_of
from fastgae.estimators.gae import gae


def compute_gae(
    truncation: Any,
    termination: Any,
    rewards: Any,
    values: Any,
    bootstrap_value: Any,
    lambda_: float = 1.0,
    discount: float = 0.99,
) -> tuple[Any, Any]:
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
    reward, value, last = numbers_of(rewards), numbers_of(values), numbers_of(bootstrap_value)
    dropped = numpy_of(truncation) != 0
    ended = dropped | (numpy_of(termination) != 0)
    # A dropped step becomes a termination with reward V, so that delta and A are 0 there.
    reward = np.where(dropped, value, reward)
    targets = gae(reward, value, ended, last_values=last, gamma=discount, gae_lambda=lambda_).returns
    one_step = gae(
        reward,
        value,
        ended,
        np.ones_like(ended),
        next_values=np.concatenate([targets[1:], last[np.newaxis]]),
        gamma=discount,
    )
    given = rewards, values, bootstrap_value
    return like(targets, *given), like(one_step.advantages, *given)
