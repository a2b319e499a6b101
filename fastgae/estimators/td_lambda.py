"""TD(lambda) returns."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import NEW
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Numbers


@estimator(result="returns", words={"gae_lambda": "lambda_"})
def td_lambda(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
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
    **misnamed: Unpack[Misnamed],
) -> ArrayT:
    r"""Compute the lambda-return of every step: the value target that belongs to the advantages of ``gae``.

    ::

        G_t = r_t + gamma ((1 - lambda) V'_t + lambda G_{t+1})     G_{t+1} is V' where the episode ends or is cut

    The recursion of ``gae`` computes A, and then ``G = A + V``: the ``returns`` of ``gae``, bit for bit. That is the
    textbook's lambda-return where V'_t is V_{t+1}. If ``next_values`` come from another network than ``values``, such
    as a target network, it is ``G_t = r_t + gamma (V'_t + lambda (G_{t+1} - V_{t+1}))`` inside an episode. The
    textbook's equation is then one call of ``reverse_scan``, as in the second example.

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

    The textbook's lambda-return, from the values of a target network:

    >>> gamma, lambda_, next_values = 0.5, 0.5, np.full(4, 8.0)
    >>> terminated, truncated = np.array([[0, 0, 1, 0], [0, 1, 0, 0]], bool)
    >>> done = terminated | truncated
    >>> bootstrap = np.where(terminated, 0, gamma * next_values)
    >>> terms = np.ones(4) + np.where(done, 1, 1 - lambda_) * bootstrap
    >>> fastgae.reverse_scan(terms, np.where(done, 0, gamma * lambda_), initial=next_values[-1])
    array([4.25, 5.  , 1.  , 5.  ])
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, lambda_, time_axis, (None, NEW if out is None else out),
    )  # fmt: skip
    return run(td_lambda, call, backend, num_threads, stop_gradients, unnamed, misnamed).returns
