"""Discounted returns."""

from numpy import ndarray
from numpy.typing import ArrayLike

from fastgae._canonical import Array, checked_returns
from fastgae._interop import is_tensor, takes_tensors, with_tensors
from fastgae._run import run


@takes_tensors
def discounted_returns(
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None = None,
    *,
    last_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    time_axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
    backend: str | None = None,
) -> Array:
    r"""The discounted sum of the rewards to the end of each episode (rewards to go).

    ::

        G_t = r_t + gamma G_{t+1}     the second term only where not (terminated_t or truncated_t)
        G_t = r_t + gamma V'_t        where truncated_t and not terminated_t: V' is the final value
        G_T = last_values

    Parameters
    ----------
    rewards, terminated, truncated, mask, gamma, time_axis, num_threads, backend
        As in ``gae``. At masked steps G = 0.
    last_values : array of ``rewards``' shape without time
        V of the state after the last step; may be left out where the last step ends every episode.
    final_values : array
        V of the final observations of the truncated steps, as in ``gae``; needed where ``truncated`` is given.
    out : array, optional
        To fill, of ``rewards``' shape and the working dtype.

    Returns
    -------
    array of ``rewards``' shape in the working dtype, in the units of the rewards.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018 (equation 3.9). The same bits as
    ``reverse_scan(rewards, gamma)`` where no episode ends.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.discounted_returns(np.ones(3, np.float32), np.array([0, 0, 1]), gamma=0.5)
    array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    if type(rewards) is not ndarray and is_tensor(rewards):
        return with_tensors(discounted_returns, locals())
    arguments = checked_returns(rewards, terminated, truncated, last_values, final_values, mask, gamma, time_axis, out)
    return run(arguments, backend, num_threads).advantages
