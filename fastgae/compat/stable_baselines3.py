"""Stable-Baselines3: the method of RolloutBuffer, and of DictRolloutBuffer."""

from typing import Any

import numpy as np

from fastgae.compat._tensors import numpy_of
from fastgae.estimators.gae import gae


def compute_returns_and_advantage(rollout_buffer: Any, last_values: Any, dones: Any) -> None:
    r"""``RolloutBuffer.compute_returns_and_advantage``; as a function, its ``self`` is the first argument.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not episode_starts_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not episode_starts_{t+1}
        R_t     = A_t + V_t                        V_T = last_values, episode_starts_T = dones

    Shifted flags. A truncated step has gamma V(final observation) in its reward already, added as it was collected
    (policy c), and is a termination here.

    Parameters
    ----------
    rollout_buffer : RolloutBuffer, or an object with the arrays and numbers of one
        ``rewards``, ``values`` and ``episode_starts`` of shape (buffer_size, n_envs), ``gamma`` and ``gae_lambda``.
        Its ``advantages`` are filled, its ``returns`` are a new array: the same bits as Stable-Baselines3 gives in
        float32.
    last_values : tensor of n_envs numbers, of any shape
    dones : array of shape (n_envs,), bool or 0 and 1

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.
    """
    starts = rollout_buffer.episode_starts
    returns = np.empty_like(rollout_buffer.advantages)
    gae(
        rollout_buffer.rewards,
        rollout_buffer.values,
        np.concatenate([starts[1:], np.asarray(dones, starts.dtype)[np.newaxis]]),
        last_values=numpy_of(last_values).reshape(starts.shape[1:]),
        gamma=rollout_buffer.gamma,
        gae_lambda=rollout_buffer.gae_lambda,
        out=(rollout_buffer.advantages, returns),
    )
    rollout_buffer.returns = returns
