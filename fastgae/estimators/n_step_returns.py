"""n-step returns."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import NEW
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Numbers


@estimator(result="returns")
def n_step_returns(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    n: int,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    time_axis: int = 0,
    out: ArrayT | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> ArrayT:
    r"""Compute n-step returns, n rewards and a bootstrap: the target of n-step temporal-difference learning.

    ::

        G_t^(1) = r_t + gamma V'_t              V' left out where terminated_t
        G_t^(k) = r_t + gamma G_{t+1}^(k-1)     where step t neither ends an episode nor is the last; else G_t^(1)

    It takes n passes over the rollout. ``numba`` has no kernel for it: NumPy computes it there.

    Parameters
    ----------
    rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask, gamma
        As in ``gae``, and so are ``time_axis``, ``stop_gradients``, ``num_threads`` and ``backend``. Steps that do not
        exist do not count among the n, and G = V there.
    n : int >= 1
        Number of rewards in each return; fewer if the episode or the rollout ends before.
    out : array, optional
        An array of ``rewards``' shape and the working dtype, which is filled and returned.

    Returns
    -------
    array of ``rewards``' shape in the working dtype, in the units of the rewards.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018 (equation 7.1). ``n=1`` is
    ``td_lambda`` with ``lambda_=0``, up to rounding.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values = np.ones(4, np.float32), np.ones(5, np.float32)
    >>> fastgae.n_step_returns(rewards, values, np.array([0, 0, 1, 0]), n=2, gamma=0.5)
    array([1.75, 1.5 , 1.  , 1.5 ], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, 0.0, time_axis, (None, NEW if out is None else out), None, None, None, False, False, None, n,
        "n_step_returns",
    )  # fmt: skip
    return run(n_step_returns, call, backend, num_threads, stop_gradients, unnamed, misnamed).returns
