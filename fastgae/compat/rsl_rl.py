"""rsl_rl: ``PPO.compute_returns``, and a PPO that uses it.

Change one line of the runner's configuration, and a seeded run gives the same weights::

    "algorithm": {"class_name": "PPO", ...}                       # before
    "algorithm": {"class_name": "fastgae.compat.rsl_rl:PPO", ...} # after

``PPO`` is a subclass of rsl_rl's class. rsl_rl is imported at its first use.
"""

import importlib
from typing import Any

from fastgae._interop import like, numbers_of, numpy_of
from fastgae.compat._hooks import made_once
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize


def compute_returns(
    rewards: Any,
    values: Any,
    dones: Any,
    last_values: Any,
    gamma: float,
    lam: float,
    normalize_advantage: bool = True,
) -> tuple[Any, Any]:
    r"""Compute returns and advantages like rsl_rl, from the arrays of its storage.

    ::

        A_t = (r_t + B_t gamma V_{t+1}) - V_t + B_t gamma lambda A_{t+1}     B_t = 1 - dones_t
        R_t = A_t + V_t
        advantages = R - V, or (R - V - mean) / (std + 1e-8) with Bessel's std

    Truncation ends an episode like termination; when rsl_rl stores a step that timed out, it adds gamma V(s_t) to its
    reward. Returns, and advantages without normalisation, are the same bits in float32, because gamma and lambda are
    rounded to the dtype one by one, as in torch. Normalised advantages differ by the rounding of mean and std: torch
    adds up float32 numbers in an order of its own, and fastgae float64 numbers.

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
    reward, value = numbers_of(rewards), numbers_of(values)
    rounded = reward.dtype.type
    # gae multiplies gamma and lambda in float64, where the product of two float32 numbers is exact.
    returns = gae(
        reward,
        value,
        numpy_of(dones),
        last_values=numbers_of(last_values),
        gamma=float(rounded(gamma)),
        gae_lambda=float(rounded(lam)),
    ).returns
    advantages = returns - value
    if normalize_advantage:
        advantages = normalize(advantages, ddof=1)
    given = rewards, values, last_values
    return like(returns, *given), like(advantages, *given)


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, PPO=_ppo)


def _ppo() -> type:
    theirs: Any = importlib.import_module("rsl_rl.algorithms").PPO

    class PPO(theirs):  # type: ignore[misc]
        """rsl_rl's PPO with returns and advantages by fastgae: the same bits in float32.

        It normalises with torch's own moments, because those of ``compute_returns`` are float64.
        """

        def compute_returns(self, obs: Any) -> None:
            storage, critic = self.storage, self.critic
            hidden_state = critic.get_hidden_state()
            last_values = critic(obs).detach()
            critic.reset(hidden_state=hidden_state)  # looking ahead must not change the critic's state
            returns, advantages = compute_returns(
                storage.rewards, storage.values, storage.dones, last_values, self.gamma, self.lam, False
            )
            if not self.normalize_advantage_per_mini_batch:
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            storage.returns.copy_(returns)
            storage.advantages = advantages

    return PPO
