"""TD(lambda) returns."""

from __future__ import annotations

from enum import Enum

from fastgae._declared import estimator
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Numbers


@estimator(result="returns", words={"gae_lambda": "lambda_"})
def td_lambda(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    *,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    lambda_: float | ArrayLike = 0.95,
    time_axis: int = 0,
    out: ArrayT | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
) -> ArrayT:
    r"""Compute the lambda-return of every step: the value target that belongs to the advantages of ``gae``.

    ::

        G_t = r_t + gamma ((1 - lambda) V'_t + lambda G_{t+1})     G_{t+1} is V' where the episode ends or is cut

    The recursion of ``gae`` computes A, and then ``G = A + V``: the ``returns`` of ``gae``, bit for bit.

    Parameters
    ----------
    rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask, gamma
        As in ``gae``, and so are ``time_axis``, ``stop_gradients``, ``num_threads`` and ``backend``.
    lambda_ : float in [0, 1], or an array of them, as for ``gamma``
        0: the one-step target ``r + gamma V'``. 1: the discounted return.
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
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018 (equation 12.18).

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values = np.ones(3, np.float32), np.zeros(4, np.float32)
    >>> fastgae.td_lambda(rewards, values, np.array([0, 0, 1]), gamma=0.5, lambda_=0.0)
    array([1., 1., 1.], dtype=float32)
    """
