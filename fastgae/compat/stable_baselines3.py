"""Stable-Baselines3: ``compute_returns_and_advantage``, and the two rollout buffers that use it.

Change one argument, and a seeded run gives the same weights::

    from fastgae.compat.stable_baselines3 import RolloutBuffer

    PPO("MlpPolicy", env)                                         # before
    PPO("MlpPolicy", env, rollout_buffer_class=RolloutBuffer)     # after

Use ``DictRolloutBuffer`` for Dict observations ("MultiInputPolicy"). Both are subclasses of Stable-Baselines3's
classes, and import it at their first use. For another buffer, such as those of sb3-contrib, write the subclass::

    class FastBuffer(MaskableRolloutBuffer):
        compute_returns_and_advantage = fastgae.compat.stable_baselines3.compute_returns_and_advantage
"""

import importlib
from typing import Any

import numpy as np

from fastgae._interop import on_the_cpu
from fastgae.estimators.gae import gae


def compute_returns_and_advantage(rollout_buffer: Any, last_values: Any, dones: Any) -> None:
    r"""Fill the buffer like ``RolloutBuffer.compute_returns_and_advantage``, with its ``self`` as the first argument.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not episode_starts_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not episode_starts_{t+1}
        R_t     = A_t + V_t                        V_T = last_values, episode_starts_T = dones

    ``episode_starts[t]`` says that observation t is the first of an episode. A truncated step counts as terminated
    here, because Stable-Baselines3 added gamma V(final observation) to its reward when it collected the step.

    Parameters
    ----------
    rollout_buffer : RolloutBuffer, or an object with the arrays and numbers of one
        ``rewards``, ``values`` and ``episode_starts`` of shape (buffer_size, n_envs), ``gamma`` and ``gae_lambda``.
        Its ``advantages`` are filled, and its ``returns`` become a new array: the same bits as Stable-Baselines3's in
        float32.
    last_values : tensor of n_envs numbers, of any shape
    dones : array of shape (n_envs,), bool or 0 and 1

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    starts = rollout_buffer.episode_starts
    returns = np.empty_like(rollout_buffer.advantages)
    gae(
        rollout_buffer.rewards,
        rollout_buffer.values,
        np.concatenate([starts[1:], np.asarray(dones, starts.dtype)[np.newaxis]]),
        last_values=on_the_cpu(last_values).reshape(starts.shape[1:]),
        gamma=rollout_buffer.gamma,
        gae_lambda=rollout_buffer.gae_lambda,
        out=(rollout_buffer.advantages, returns),
    )
    rollout_buffer.returns = returns


def __getattr__(name: str) -> Any:
    """Make the class at its first use, so that Stable-Baselines3 is imported only then."""
    if name not in ("RolloutBuffer", "DictRolloutBuffer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    theirs = getattr(importlib.import_module("stable_baselines3.common.buffers"), name)
    body = {
        "__module__": __name__,
        "__doc__": f"Stable-Baselines3's {name} with advantages and returns by fastgae: the same bits.",
        "compute_returns_and_advantage": compute_returns_and_advantage,
    }
    # Keep the class, so that every caller gets the same one, and pickle finds it.
    return globals().setdefault(name, type(name, (theirs,), body))
