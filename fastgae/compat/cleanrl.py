"""CleanRL: the loop of ppo.py and its siblings."""

from typing import Any

import numpy as np

from fastgae._interop import like, numbers_of, numpy_of
from fastgae.estimators.gae import gae


def compute_gae(
    rewards: Any,
    values: Any,
    dones: Any,
    next_value: Any,
    next_done: Any,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> tuple[Any, Any]:
    r"""Advantages and returns of the lines under "bootstrap value if not done", in the words of that script.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not dones_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not dones_{t+1}
        R_t     = A_t + V_t                        V_T = next_value, dones_T = next_done

    Shifted flags: ``dones[t]`` says that observation t is the first of an episode. Truncation is termination (policy
    a). The scripts hold these lines in no function, so the name is that of their JAX siblings.

    Parameters
    ----------
    rewards, values, dones : tensor of shape (num_steps, num_envs), or with more axes behind
    next_value : tensor of shape (num_envs,) or (1, num_envs)
    next_done : tensor of shape (num_envs,)

    Returns
    -------
    (advantages, returns)
        Like ``rewards``: the same bits as the scripts give in float32 and in float64, on a CPU.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.
    """
    reward, flags = numbers_of(rewards), numpy_of(dones)
    last = numpy_of(next_done).reshape(1, *flags.shape[1:])
    result = gae(
        reward,
        numbers_of(values),
        np.concatenate([flags[1:], last]),
        last_values=numbers_of(next_value).reshape(reward.shape[1:]),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    given = rewards, values, next_value
    return like(result.advantages, *given), like(result.returns, *given)
