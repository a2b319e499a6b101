"""Generalized Advantage Estimation."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import GAEResult
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Normalize, Numbers, Output


@estimator()
def gae(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    last_advantages: ArrayLike | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    tail_normalized: bool = False,
    carry_over: bool = False,
    time_axis: int = 0,
    out: Output[ArrayT] | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute advantages and value targets of rollouts: Generalized Advantage Estimation.

    ::

        delta_t = (r_t + gamma V'_t) - V_t          gamma V'_t only where not terminated_t
        A_t     = delta_t + gamma lambda A_{t+1}    the second term only where not (terminated_t or truncated_t)
        R_t     = A_t + V_t                         A after the last step is ``last_advantages``, or 0

    V'_t is V of the state after step t: V_{t+1}, ``last_values`` after the last step, and V of the final observation
    where t is truncated; or ``next_values``. Every operation is rounded on its own; gamma lambda once, from float64.
    A NaN that a flag leaves out is harmless. The bits are the same on every backend and CPU (docs/exactness.md).
    Sources: Schulman et al. 2016, arXiv:1506.02438 (equation 16); Pardo et al. 2018, arXiv:1712.00378 (truncation).

    Parameters
    ----------
    rewards : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Of NumPy, torch or JAX (docs/tensors.md). 16-bit floats count as float32. A mix promotes as NumPy
        does, and integers alone become float64.
    values : array like ``rewards``, or one longer along time
        V(s_t). The extra row is V of the state after the last step.
    terminated : array like ``rewards``, or None; bool, or numbers that are 0 or 1
        The step ended the episode for good. None: no step does, as for the tokens of an answer. Agents or heads that
        share flags may leave out the axes after (T, N).
    truncated : array like ``terminated``; default None: no step
        A limit ended the episode, so its next state has a value. ``terminated`` wins where both are set.
    last_values : array of shape (N,) or (1, N), or a number; default None
        V of the state after the last step, or after the last one in ``mask``. Pass exactly one of ``last_values``,
        ``next_values`` and a longer ``values``; if ``terminated`` is None, ``last_values``.
    next_values : array like ``rewards``; default None
        V(s_{t+1}) of every step, from the observation before any reset.
    final_values : array; default None
        V of the final observations, one per True of ``truncated`` in C order, or like ``rewards``. With ``truncated``,
        pass it, ``next_values``, or ``autoreset="next_step"``.
    mask : array like ``terminated``; default None: every step exists
        False: no such step, and its flags are not read; the step before takes V' and A from the next one that exists.
        A = 0 and R = V there.
    gamma, gae_lambda : float in [0, 1], or arrays of them; defaults 0.99 and 0.95
        Discount, and decay of the trace. Each axis of an array has full length or 1: (1, N) is one number per env.
    normalize : "global" or "per_env"; default None
        Return ``(A - mean) * (1 / (std + 1e-8))``, over all steps or those of each env; std is the population's, in
        float64.
    time_axis : int; default 0
    out : (advantages, returns); default None: new arrays
        Arrays to fill. One may be None, and is not computed. They may overlap an input, but not each other.
    stop_gradients : bool; default True
        False: results of torch and JAX have gradients in all numbers, but not through terms that a flag leaves out.
    num_threads, backend : int; "cpp", "numba", "numpy", or a target such as "cpp:avx2"; default None
        None: all CPUs of this process, and the best backend, or what the environment says (docs/backends.md).

    Other Parameters
    ----------------
    autoreset : "next_step", "same_step", "disabled", or Gymnasium's AutoresetMode; default None
        With "next_step", the next row after a done (in ``mask``) is a reset row: A = 0 and R = V there, and at a
        truncated step ``values[t + 1]`` is V of the final observation. The other modes change nothing.
    prev_done : array of shape (N,) or (1, N); default None
        With "next_step": row 0 is a reset row, because the step before it ended an episode.
    last_advantages : array like ``last_values``; default None: 0
        A of the step after the last one, for a rollout in pieces from its end. Not with
        ``returns_lambda`` or ``tail_normalized``.
    returns_lambda : like ``gae_lambda``; default None: the same
        Another lambda for the returns.
    tail_normalized : bool; default False
        The average of the k-step advantages that the rollout has: ``A = G / D`` with ``D_t = 1 + lambda D_{t+1}`` and
        ``G_t = D_t delta_t + gamma lambda G_{t+1}``, the second terms only where the episode goes on.
    carry_over : bool; default False
        Outside of ``mask``, A is that of the next step that exists, and R = A + V, as in verl (docs/tokens.md). Not
        with ``normalize`` or ``tail_normalized``.

    Returns
    -------
    GAEResult
        ``(advantages, returns)`` like ``rewards``, in the working dtype and the units of the rewards.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        An argument has a wrong shape, value or type, or is missing; or the backend cannot run here.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values, terminated = np.ones(3, np.float32), np.zeros(4, np.float32), np.array([0, 1, 0])
    >>> fastgae.gae(rewards, values, terminated, gamma=0.5, gae_lambda=1.0).returns
    array([1.5, 1. , 1. ], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, gae_lambda, time_axis, out, normalize, last_advantages, returns_lambda, tail_normalized, carry_over,
    )  # fmt: skip
    return run(gae, call, backend, num_threads, stop_gradients, unnamed, misnamed)
