"""RLlib: ``compute_value_targets``, and PPO's learner with it in place.

One argument of the configuration, and a seeded run gives the same weights::

    from fastgae.compat.rllib import PPOTorchLearner

    config.learners(num_learners=1)                                 # before
    config.learners(num_learners=1, learner_class=PPOTorchLearner)  # after

``PPOTorchLearner`` is a subclass of RLlib's, which is imported when it is asked for.
"""

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastgae._call import Array
from fastgae.compat._hooks import made_once, replace
from fastgae.estimators.gae import gae


def compute_value_targets(
    values: ArrayLike,
    rewards: ArrayLike,
    terminateds: ArrayLike,
    truncateds: ArrayLike,
    gamma: float,
    lambda_: float,
) -> Array:
    r"""Value targets of episodes that lie end to end, the same bits as RLlib's.

    ::

        A_t = (r_t + gamma B_t V_{t+1}) - V_t + gamma lambda C_t A_{t+1}     V_T = 0
        B_t = not terminated_t,  C_t = not (terminated_t or truncated_t), direct flags
        targets = A + V

    Truncation bootstraps from the next value: RLlib makes every episode one step longer, so that the next row *is* the
    final observation, and masks the row that it added out of the loss. The recursion is in float64, for RLlib's flags
    promote to it, and advantages are rounded to float32 before V is added. (Flags of float32 would keep RLlib's gamma
    in float32.) Where a gate is closed its term is left out, RLlib multiplies it by 0.

    Parameters
    ----------
    values, rewards : (T,)
        Of the episodes with their added rows; float32 or float64.
    terminateds, truncateds : (T,); bool, or numbers that are 0 or 1
        Flags of each step, as ``env.step`` returns them.
    gamma, lambda_ : float
        Discount, and decay of the trace.

    Returns
    -------
    (T,), float32. RLlib's advantages are these minus ``values``, normalised with max(1e-4, std).

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.

    Notes
    -----
    ``ray/rllib/utils/postprocessing/value_predictions.py``, version 2.60.
    """
    value = np.asarray(values)
    advantages = gae(
        np.asarray(rewards, np.float64),
        value,
        terminateds,
        truncateds,
        next_values=np.append(value[1:], np.zeros_like(value[:1])),
        gamma=gamma,
        gae_lambda=lambda_,
    ).advantages
    targets: Array = (advantages.astype(np.float32) + value).astype(np.float32)
    return targets


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, PPOTorchLearner=_learner)


def _learner() -> type:
    theirs: Any = importlib.import_module("ray.rllib.algorithms.ppo.torch.ppo_torch_learner").PPOTorchLearner

    class PPOTorchLearner(theirs):  # type: ignore[misc]
        """RLlib's, in whose process the GAE connector calls fastgae: the same bits."""

        def build(self) -> None:
            super().build()
            connector = importlib.import_module("ray.rllib.connectors.learner.general_advantage_estimation")
            replace(connector, compute_value_targets=compute_value_targets)

    return PPOTorchLearner
