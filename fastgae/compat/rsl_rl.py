"""rsl_rl: ``PPO.compute_returns``, and a PPO that uses it.

Change one line of the runner's configuration, and a seeded run gives the same weights::

    "algorithm": {"class_name": "PPO", ...}                       # before
    "algorithm": {"class_name": "fastgae.compat.rsl_rl:PPO", ...} # after

``PPO`` is a subclass of rsl_rl's class. rsl_rl is imported at its first use.

``PPOWithFinalObs`` **changes results**: at a step that timed out it bootstraps from V of ``extras["final_obs"]``, the
observations before the reset, whereas rsl_rl bootstraps from V of the observation before the step::

    "algorithm": {"class_name": "fastgae.compat.rsl_rl:PPOWithFinalObs", ...}
"""

import importlib
from typing import Any

import numpy as np

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library, made_once
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize

LIBRARY = Library("rsl-rl-lib", "5.0.0", "5.5.1")


@anywhere("rewards: T ...", last_values="...")
def compute_returns(
    rewards: Like[ArrayT],
    values: Numbers,
    dones: Flags,
    last_values: Numbers,
    gamma: Coefficient,
    lam: Coefficient,
    normalize_advantage: bool = True,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute returns and advantages like rsl_rl, from the arrays of its storage.

    ::

        A_t = (r_t + B_t gamma V_{t+1}) - V_t + B_t gamma lambda A_{t+1}     B_t = 1 - dones_t
        R_t = A_t + V_t
        advantages = R - V, or (R - V - mean) / (std + 1e-8) with Bessel's std

    Truncation ends an episode like termination; when rsl_rl stores a step that timed out, it adds gamma V(s_t) to its
    reward. Returns, and advantages without normalisation, are the same bits in float32, because gamma and lambda are
    rounded to the dtype one by one, as in torch. Normalised advantages differ by the rounding of mean and std: torch
    adds up float32 numbers in its own order, and fastgae adds up float64 numbers.

    Parameters
    ----------
    rewards, values : (T, N, 1), or any shape with time first
        Float32 or float64.
    dones : like ``rewards``
        True where the step ended an episode.
    last_values : (N, 1)
        V of the observation after the last step.
    gamma, lam : float
        Discount, and decay of the trace.
    normalize_advantage : bool
        Pass ``not normalize_advantage_per_mini_batch`` of rsl_rl's PPO.

    Returns
    -------
    (returns, advantages), of the shape and type of ``rewards``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``rsl_rl/algorithms/ppo.py``, version 5.5, where arrays and settings are attributes of the algorithm; older
    versions pass them to ``RolloutStorage.compute_returns(last_values, gamma, lam, normalize_advantage)``.
    """
    # gae multiplies gamma and lambda in float64, where the product of two float32 numbers is exact.
    factors = {"gamma": _rounded(gamma, rewards), "gae_lambda": _rounded(lam, rewards)}
    returns = gae(rewards, values, dones, last_values=last_values, **factors).returns
    advantages = returns - values
    return returns, normalize(advantages, ddof=1) if normalize_advantage else advantages


def _rounded(number: float, array: Any) -> Any:
    """Return a number rounded to the dtype of an array."""
    xp = namespace_of(array)
    held = xp.asarray(number, dtype=array.dtype)
    return float(held) if xp is np else held  # a float takes the short cut, and torch's compiler cannot make one


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, PPO=_ppo, PPOWithFinalObs=_ppo_with_final_obs)


def _ppo() -> type:
    # Looking ahead changes the state of a recurrent critic, which rsl_rl restores since 5.3.
    look_ahead = _looked_ahead if LIBRARY.release() >= (5, 3, 0) else _values
    theirs: Any = importlib.import_module("rsl_rl.algorithms").PPO

    class PPO(theirs):  # type: ignore[misc]
        """rsl_rl's PPO with returns and advantages from fastgae: the same bits in float32.

        It normalises with torch's own moments, because the moments of ``compute_returns`` are float64.
        """

        def compute_returns(self, obs: Any) -> None:
            storage = self.storage
            last_values = look_ahead(self.critic, obs)
            returns, advantages = compute_returns(
                storage.rewards, storage.values, storage.dones, last_values, self.gamma, self.lam, False
            )
            if not self.normalize_advantage_per_mini_batch:
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            storage.returns.copy_(returns)
            storage.advantages = advantages

    LIBRARY.fitting("rsl_rl.algorithms:PPO.compute_returns", PPO.compute_returns)
    return PPO


def _ppo_with_final_obs() -> type:
    ours: Any = importlib.import_module(__name__).PPO

    class PPOWithFinalObs(ours):  # type: ignore[misc]
        """``PPO`` that bootstraps a step that timed out from the observation to which the step led.

        This changes results: rsl_rl adds gamma V(s_t) to the reward of such a step, but this class adds gamma V of
        ``extras["final_obs"]``, which has the observations of all envs from before the reset, like ``obs``. Isaac Lab
        provides them with ``compute_final_obs=True``; KeyError if a step timed out without them.
        """

        def process_env_step(self, obs: Any, rewards: Any, dones: Any, extras: dict[str, Any]) -> None:
            rest = dict(extras)
            time_outs = rest.pop("time_outs", None)
            if time_outs is not None and time_outs.any():
                if "final_obs" not in extras:
                    raise KeyError(
                        "extras has no final_obs at a step that timed out: let the environment give the observations "
                        "from before its reset, in Isaac Lab with compute_final_obs, or use PPO"
                    )
                ended = time_outs.to(rewards.device).bool()
                final_values = _looked_ahead(self.critic, extras["final_obs"]).squeeze(1)
                rewards = rewards.where(~ended, rewards + self.gamma * final_values)
            super().process_env_step(obs, rewards, dones, rest)

    LIBRARY.fitting("rsl_rl.algorithms:PPO.process_env_step", PPOWithFinalObs.process_env_step)
    return PPOWithFinalObs


def _values(critic: Any, obs: Any) -> Any:
    return critic(obs).detach()


def _looked_ahead(critic: Any, obs: Any) -> Any:
    """Return the values of observations, and leave the state of a recurrent critic as it is."""
    hidden_state = critic.get_hidden_state()
    values = _values(critic, obs)
    critic.reset(hidden_state=hidden_state)
    return values
