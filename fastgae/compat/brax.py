"""Brax: the compute_gae of its PPO."""

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
    r"""Value targets, and the advantages of one more step of temporal difference on them.

    ::

        delta_t = (r_t + discount V_{t+1}) - V_t             the bootstrap only where not terminated_t
        vs_t    = V_t + A_t,  A_t = delta_t + discount lambda A_{t+1},  the second term only where not terminated_t
        adv_t   = (r_t + discount vs_{t+1}) - V_t            the bootstrap only where not terminated_t
        vs_t    = V_t,  A_t = adv_t = 0                      where truncated_t

    V_T = vs_T = ``bootstrap_value``. Direct flags; a truncated step is dropped (policy g), and the one before it has
    V of the truncated step behind it, but no advantage.

    Parameters
    ----------
    truncation, termination : array of shape (T, B), 0 and 1
    rewards, values : array of shape (T, B)
    bootstrap_value : array of shape (B,)

    Returns
    -------
    (vs, advantages)
        Like ``rewards``, without gradients, to 1e-5: XLA may join a product and a sum into one rounding, and has
        discount lambda as a float32 product.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.
    """
    reward, value, last = numbers_of(rewards), numbers_of(values), numbers_of(bootstrap_value)
    dropped = numpy_of(truncation) != 0
    ended = dropped | (numpy_of(termination) != 0)
    # A termination whose reward is V: delta is 0, and A with it.
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
