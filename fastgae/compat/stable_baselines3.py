"""Stable-Baselines3: the method of RolloutBuffer and of DictRolloutBuffer, and both with it in place.

One argument switches a run, and a seeded one gives the same weights::

    from fastgae.compat.stable_baselines3 import RolloutBuffer

    PPO("MlpPolicy", env)                                         # before
    PPO("MlpPolicy", env, rollout_buffer_class=RolloutBuffer)     # after

``DictRolloutBuffer`` is for Dict observations ("MultiInputPolicy"). Both are subclasses of Stable-Baselines3's, which
is imported when one of them is. For a buffer of another kind, such as those of sb3-contrib, write the subclass::

    class FastBuffer(MaskableRolloutBuffer):
        compute_returns_and_advantage = fastgae.compat.stable_baselines3.compute_returns_and_advantage
"""

import importlib
from typing import Any

import numpy as np

from fastgae._interop import numpy_of
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


def __getattr__(name: str) -> Any:
    """Makes the class when it is asked for, so that Stable-Baselines3 is imported only then."""
    if name not in ("RolloutBuffer", "DictRolloutBuffer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    theirs = getattr(importlib.import_module("stable_baselines3.common.buffers"), name)
    body = {
        "__module__": __name__,
        "__doc__": f"Stable-Baselines3's {name} with advantages and returns by fastgae: the same bits.",
        "compute_returns_and_advantage": compute_returns_and_advantage,
    }
    # Kept, so that there is one class of the name, and pickle finds it.
    return globals().setdefault(name, type(name, (theirs,), body))
