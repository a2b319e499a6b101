"""Stable-Baselines3: ``compute_returns_and_advantage``, and two ways to make its algorithms use it.

Change one argument, and a seeded run gives the same weights::

    from fastgae.compat.stable_baselines3 import RolloutBuffer

    PPO("MlpPolicy", env)                                         # before
    PPO("MlpPolicy", env, rollout_buffer_class=RolloutBuffer)     # after

Use ``DictRolloutBuffer`` for Dict observations ("MultiInputPolicy"). Both are subclasses of Stable-Baselines3's
classes, and import it at their first use. For algorithms that choose their buffer themselves, such as RecurrentPPO of
sb3-contrib, add one line before you train::

    fastgae.compat.stable_baselines3.install()
"""

import importlib
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from fastgae.compat._anywhere import Copied, Flags, Numbers, in_numpy
from fastgae.compat._hooks import Library, made_once
from fastgae.estimators.discounted_returns import discounted_returns
from fastgae.estimators.gae import gae

# Versions before 2.4 compute in float64, because they subtract bool flags from 1.0.
LIBRARY = Library("stable-baselines3", "2.4.0", "2.9.2")
BUFFERS = "stable_baselines3.common.buffers"


def compute_returns_and_advantage(self: Any, last_values: Any, dones: Any) -> None:
    r"""Fill the buffer ``self`` like ``RolloutBuffer.compute_returns_and_advantage``.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not episode_starts_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not episode_starts_{t+1}
        R_t     = A_t + V_t                        V_T = last_values, episode_starts_T = dones

    ``episode_starts[t]`` says that observation t is the first of an episode. A truncated step counts as terminated
    here, because Stable-Baselines3 added gamma V(final observation) to its reward when it collected the step.

    Parameters
    ----------
    self : RolloutBuffer, or an object with the arrays and numbers of one
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
    # A2C calls this after every few steps, with cold caches: each function of Python costs microseconds then.
    starts = self.episode_starts
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    returns = np.empty_like(self.advantages)
    try:
        ends[-1] = dones
        last = last_values if isinstance(last_values, np.ndarray) else last_values.numpy(force=True)
        wide = np.result_type(self.rewards, self.values, last, self.gamma, self.gae_lambda)
        if wide == returns.dtype:
            how = {"last_values": last.ravel(), "gamma": self.gamma, "gae_lambda": self.gae_lambda}
            gae(self.rewards, self.values, ends, **how, out=(self.advantages, returns))
        else:  # float64 rewards or last values, or NumPy's float64 as gamma; as gae_lambda it leaves the deltas narrow
            deltas = np.empty_like(returns, wide)
            for rows, following in ((np.s_[:-1], self.values[1:]), (np.s_[-1:], last.reshape(ends[-1:].shape))):
                targets = self.rewards[rows] + self.gamma * np.where(ends[rows], np.float32(0), following)
                deltas[rows] = targets - self.values[rows]
            decay = (self.gamma * self.gae_lambda * np.ones(1, np.float32))[0]  # float32, but for NumPy 2's float64
            self.advantages[...] = discounted_returns(deltas, ends, last_values=0.0, gamma=decay)
            returns = self.advantages + self.values
    except Exception:
        _check(self.rewards, last_values, dones, starts)  # only here, because it takes longer than all of the above
        raise
    self.returns = returns


@in_numpy("rewards: T N", last_values="N | N 1 | 1 N", dones="N")
def _check(rewards: Numbers, last_values: Copied, dones: Flags, episode_starts: Flags) -> None:
    """Raise the error that names the argument if one of them is wrong."""


def install() -> ExitStack:
    """Replace ``RolloutBuffer.compute_returns_and_advantage``, which all buffers inherit; results are the same bits.

    The buffers of sb3-contrib, such as the buffers of RecurrentPPO and MaskablePPO, inherit it too.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    place = f"{BUFFERS}:RolloutBuffer.compute_returns_and_advantage"
    return LIBRARY.install({place: (compute_returns_and_advantage,)})


def __getattr__(name: str) -> Any:
    makers = {each: partial(_subclass, each) for each in ("RolloutBuffer", "DictRolloutBuffer")}
    return made_once(globals(), name, **makers)


def _subclass(name: str) -> type:
    """Make a subclass of Stable-Baselines3's buffer of this name."""
    LIBRARY.release()
    method = compute_returns_and_advantage.__name__
    body = {
        "__module__": __name__,
        "__doc__": f"Stable-Baselines3's {name} with advantages and returns by fastgae: the same bits.",
        method: LIBRARY.fitting(f"{BUFFERS}:{name}.{method}", compute_returns_and_advantage),
    }
    return type(name, (getattr(importlib.import_module(BUFFERS), name),), body)
