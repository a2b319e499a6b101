"""CleanRL: the advantage loop of ppo.py and its siblings."""

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
    r"""Compute the advantages and returns of the loop under "bootstrap value if not done", with the script's variables.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not dones_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not dones_{t+1}
        R_t     = A_t + V_t                        V_T = next_value, dones_T = next_done

    ``dones[t]`` says that observation t is the first of an episode. Truncation counts as termination. The scripts have
    no function for these lines, so this one has the name that their JAX siblings use.

    Parameters
    ----------
    rewards, values, dones : tensor of shape (num_steps, num_envs) or (num_steps, num_envs, ...)
    next_value : tensor of shape (num_envs,) or (1, num_envs)
    next_done : tensor of shape (num_envs,)

    Returns
    -------
    (advantages, returns)
        Tensors like ``rewards``: the same bits as the scripts' in float32 and in float64, on a CPU.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
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
