"""Upgoing returns."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import GAEResult
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Normalize, Numbers, Output


@estimator()
def upgo(
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
    normalize: Normalize | None = None,
    time_axis: int = 0,
    out: Output[ArrayT] | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute upgoing returns: follow the rollout as long as it goes better than the values expect.

    ::

        delta_t = (r_t + gamma V'_t) - V_t
        G_t     = r_t + gamma G_{t+1}     where delta_{t+1} >= 0
        G_t     = r_t + gamma V'_t        elsewhere, and where step t ends an episode or is the last
        A_t     = G_t - V_t

    The kernel of ``gae`` computes A with lambda = 1. Where delta_{t+1} >= 0 does not hold, it treats step t as
    truncated. Then G = A + V. So if ``next_values`` come from elsewhere, such as a target network, a followed G_t is
    ``r_t + gamma (V'_t + (G_{t+1} - V_{t+1}))``.

    Parameters
    ----------
    rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask, gamma
        As in ``gae``, and so are ``normalize``, ``time_axis``, ``out``, ``stop_gradients``, ``num_threads`` and
        ``backend``.

    Returns
    -------
    GAEResult
        ``(advantages, returns)``: A and G, arrays of ``rewards``' shape in the working dtype, in the units of the
        rewards.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning", 2019 (Methods,
    "Upgoing policy update"), which has gamma = 1 and multiplies A by clipped importance ratios.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values = np.array([1.0, 1.0, -1.0, 1.0], np.float32), np.full(4, 0.5, np.float32)
    >>> fastgae.upgo(rewards, values, np.array([0, 0, 0, 1]), last_values=0.0, gamma=1.0).returns
    array([2.5, 1.5, 0. , 1. ], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, 1.0, time_axis, out, normalize, None, None, False, False, None, None, "upgo",
    )  # fmt: skip
    return run(upgo, call, backend, num_threads, stop_gradients, unnamed, misnamed)
