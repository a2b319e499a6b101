"""TD errors."""

from __future__ import annotations

from enum import Enum

from fastgae._declared import estimator
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Numbers


@estimator(result="advantages", fixed={"gae_lambda": 0.0})
def td_errors(
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
    time_axis: int = 0,
    out: ArrayT | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
) -> ArrayT:
    r"""Compute the TD error of every step.

    ::

        delta_t = r_t + gamma V'_t - V_t

    Parameters
    ----------
    rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask, gamma
        As in ``gae``, and so are ``time_axis``, ``num_threads`` and ``backend``.
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
    Sutton, "Learning to predict by the methods of temporal differences", 1988.

    Examples
    --------
    >>> import fastgae
    >>> fastgae.td_errors([1.0, 2.0], [0.5, 0.5], [False, True])
    array([0.995, 1.5  ])
    """
