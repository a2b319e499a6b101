"""RLlib: ``compute_value_targets``, and a learner for PPO that uses it.

Change one argument of the configuration, and a seeded run gives the same weights::

    from fastgae.compat.rllib import PPOTorchLearner

    config.learners(num_learners=1)                                 # before
    config.learners(num_learners=1, learner_class=PPOTorchLearner)  # after

``PPOTorchLearner`` is a subclass of RLlib's class. RLlib is imported at its first use.
"""

import importlib
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae.compat._anywhere import Coefficient, Flags, Numbers, in_numpy
from fastgae.compat._hooks import Library, made_once, replace
from fastgae.estimators.gae import gae

LIBRARY = Library("ray", "2.56.1", "2.60.0")
CONNECTOR = "ray.rllib.connectors.learner.general_advantage_estimation"


@in_numpy("values: T")
def compute_value_targets(
    values: Numbers, rewards: Numbers, terminateds: Flags, truncateds: Flags, gamma: Coefficient, lambda_: Coefficient
) -> Array:
    r"""Compute value targets of episodes that are stored end to end, the same bits as RLlib's.

    ::

        A_t = (r_t + gamma B_t V_{t+1}) - V_t + gamma lambda C_t A_{t+1}     V_T = 0
        B_t = not terminated_t,  C_t = not (terminated_t or truncated_t)
        targets = A + V

    A truncated step bootstraps from the next value: RLlib makes every episode one step longer, so that the next row
    *is* the final observation, and masks the row that it added out of the loss. The recursion runs in float64, because
    RLlib's flags promote it to float64, and advantages are rounded to float32 before V is added. (With float32 flags,
    RLlib would keep gamma in float32.) Where a flag is set, fastgae leaves the term out, but RLlib multiplies it by
    0.

    Parameters
    ----------
    values, rewards : (T,)
        The episodes with their added rows, in float32 or float64.
    terminateds, truncateds : (T,); bool, or numbers that are 0 or 1
        Flags of each step, as ``env.step`` returns them.
    gamma, lambda_ : float
        Discount, and decay of the trace.

    Returns
    -------
    (T,), float32. RLlib's advantages are these targets minus ``values``, normalised with max(1e-4, std).

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``ray/rllib/utils/postprocessing/value_predictions.py``, version 2.60.
    """
    advantages = gae(
        np.asarray(rewards, np.float64),
        values,
        terminateds,
        truncateds,
        next_values=np.append(values[1:], np.zeros_like(values[:1])),
        gamma=gamma,
        gae_lambda=lambda_,
    ).advantages
    return (advantages.astype(np.float32) + values).astype(np.float32)


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, PPOTorchLearner=_learner)


def _learner() -> type:
    LIBRARY.release()
    LIBRARY.fitting(f"{CONNECTOR}:compute_value_targets", compute_value_targets)
    theirs: Any = importlib.import_module("ray.rllib.algorithms.ppo.torch.ppo_torch_learner").PPOTorchLearner

    class PPOTorchLearner(theirs):  # type: ignore[misc]
        """RLlib's learner. In its process, the GAE connector calls fastgae, and gets the same bits."""

        def build(self) -> None:
            super().build()
            replace(importlib.import_module(CONNECTOR), compute_value_targets=compute_value_targets)

    return PPOTorchLearner
