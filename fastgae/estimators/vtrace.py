"""V-trace."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import GAEResult
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Normalize, Numbers, Output


@estimator(words={"gae_lambda": "lambda_"})
def vtrace(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    ratios: ArrayLike,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    lambda_: float | ArrayLike = 1.0,
    rho_clip: float | None = 1.0,
    c_clip: float | None = 1.0,
    advantage_clip: float | None = 1.0,
    leaky: float = 0.0,
    normalize: Normalize | None = None,
    time_axis: int = 0,
    out: Output[ArrayT] | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute off-policy advantages and value targets by V-trace.

    ::

        w_t(clip) = (1 - leaky) min(ratio_t, clip) + leaky ratio_t
        delta_t   = (r_t + gamma V'_t) - V_t
        A_t       = w_t(rho_clip) delta_t + gamma lambda w_t(c_clip) A_{t+1}
        R_t       = A_t + V_t                                                        the value targets, "vs"
        P_t       = w_t(advantage_clip) (delta_t + gamma lambda A_{t+1})             the policy's advantages

    with the flags of ``gae``: the bootstrap only where not terminated, and A_{t+1} only where the episode goes on. With
    ``lambda_=1``, P is ``w_t(advantage_clip) (r_t + gamma R_{t+1} - V_t)`` where V'_t is V_{t+1}. With all ratios 1 and
    no clip below 1 it is ``gae``, bit for bit.

    Parameters
    ----------
    rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask, gamma
        As in ``gae``, and so are ``normalize``, ``time_axis``, ``out``, ``stop_gradients``, ``num_threads`` and
        ``backend``.
    ratios : array like ``rewards``
        Importance ratios pi(a|s) / mu(a|s) of the present policy over the policy that acted; not their logarithms,
        which are not refused.
    lambda_ : float in [0, 1], or an array of them, as for ``gamma``
        Decay of the trace.
    rho_clip, c_clip, advantage_clip : float >= 0, or None
        The largest ratios in deltas, in traces and in the policy's advantages. None: not clipped.
    leaky : float in [0, 1]
        The share of the ratios that is not clipped. 0: V-trace. 1: importance sampling.

    Returns
    -------
    GAEResult
        ``(advantages, returns)``: P and R, arrays of ``rewards``' shape in the working dtype.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures", 2018
    (equations 1 and 4, remark 2). ``leaky``: Zahavy et al., "Self-Tuning Deep Reinforcement Learning", 2020,
    where it is 1 - alpha.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values = np.ones(3, np.float32), np.zeros(4, np.float32)
    >>> ratios = np.array([0.5, 2.0, 1.0], np.float32)
    >>> fastgae.vtrace(rewards, values, np.array([0, 0, 1]), ratios=ratios, gamma=0.5).returns
    array([0.875, 1.5  , 1.   ], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, lambda_, time_axis, out, normalize, None, None, False, False, None, None, "gae", ratios, None, None,
        rho_clip, c_clip, advantage_clip, leaky,
    )  # fmt: skip
    return run(vtrace, call, backend, num_threads, stop_gradients, unnamed, misnamed)
