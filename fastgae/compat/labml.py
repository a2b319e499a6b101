"""labml: ``GAE`` of its annotated PPO."""

from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._canonical.frame import as_flags
from fastgae.compat._anywhere import Coefficient, Number, in_numpy
from fastgae.estimators.gae import gae


class GAE:
    r"""Compute advantages like ``labml_nn.rl.ppo.gae.GAE``, for ``n_workers`` rows of ``worker_steps`` steps.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not done_t
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not done_t

    Time is the last axis, and column t of the flags belongs to step t. Truncation counts as termination.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgae.compat.labml import GAE
    >>> gae = GAE(n_workers=1, worker_steps=3, gamma=0.5, lambda_=1.0)
    >>> gae(np.array([[0, 1, 0]], bool), np.ones((1, 3), np.float32), np.zeros((1, 4), np.float32))
    array([[1.5, 1. , 1. ]], dtype=float32)
    """

    @in_numpy()
    def __init__(self, n_workers: int, worker_steps: int, gamma: Coefficient, lambda_: Coefficient) -> None:
        self.n_workers = n_workers
        self.worker_steps = worker_steps
        self.gamma = gamma
        self.lambda_ = lambda_

    @in_numpy("rewards: W S", done="W S", values="W S+1")
    def __call__(self, done: Any, rewards: Number, values: Number) -> Array:
        """Return advantages of shape (n_workers, worker_steps) in float32.

        They are the same bits as labml's if rewards and values have one dtype, float32 or float64. As in labml, NumPy's
        promotion of ``1.0 - done`` decides the dtype of the computation: bool and integer flags make it float64, and
        float32 flags leave float32 numbers in float32.

        Parameters
        ----------
        done : array of shape (n_workers, worker_steps); bool, or numbers that are 0 or 1
        rewards : array of shape (n_workers, worker_steps)
        values : array of shape (n_workers, worker_steps + 1)
            The last column is V of the state after the last step.

        Raises
        ------
        ValueError, TypeError
            As in ``fastgae.gae``, and ValueError if ``rewards`` does not have the shape that the constructor got.
        """
        if rewards.shape != (self.n_workers, self.worker_steps):
            raise ValueError(f"rewards has shape {rewards.shape}; expected {(self.n_workers, self.worker_steps)}")
        working = np.result_type(rewards, values, np.float32 if done.dtype == np.float32 else np.float64)
        rewards, values = (each.astype(working, copy=False) for each in (rewards, values))
        how: dict[str, Any] = {"gamma": self.gamma, "gae_lambda": self.lambda_, "time_axis": 1}
        return gae(rewards, values, as_flags("done", done), **how).advantages.astype(np.float32, copy=False)
