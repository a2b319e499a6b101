"""Discounted returns."""

from __future__ import annotations

from typing import Never, Unpack

from fastgae._call import ABSENT, NEW
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, BackendName, Misnamed, Numbers


@estimator(result="advantages", words={"last_advantages": "last_values"})
def discounted_returns(
    rewards: ArrayT | Numbers,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    time_axis: int = 0,
    out: ArrayT | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> ArrayT:
    r"""Compute the discounted sum of the rewards to the end of each episode (rewards to go).

    ::

        G_t = r_t + gamma G_{t+1}     the second term only where not (terminated_t or truncated_t)
        G_t = r_t + gamma V'_t        where truncated_t and not terminated_t, and at the last step

    Parameters
    ----------
    rewards, terminated, truncated, mask, gamma, time_axis, stop_gradients, num_threads, backend
        As in ``gae``. At masked steps G = 0.
    last_values : array of ``rewards``' shape without time, or one number for all envs
        V of the state after the last step; with ``mask``, after the last step that exists. You may leave it out if the
        last step ends every episode.
    next_values : array like ``rewards``
        V(s_{t+1}) before any reset, in place of ``last_values`` and ``final_values``. Only V' above is read.
    final_values : array
        V of the final observations of the truncated steps, as in ``gae``. If ``truncated`` is given, pass this or
        ``next_values``.
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
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018 (equation 3.9). If no episode ends,
    the result has the same bits as ``reverse_scan(rewards, gamma)``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.discounted_returns(np.ones(3, np.float32), np.array([0, 0, 1]), gamma=0.5)
    array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    call = (
        rewards, ABSENT, terminated, truncated, None, next_values, final_values, None, None, mask, gamma, 1.0,
        time_axis, (NEW if out is None else out, None), None, last_values,
    )  # fmt: skip
    return run(discounted_returns, call, backend, num_threads, stop_gradients, unnamed, misnamed).advantages
