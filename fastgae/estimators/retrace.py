"""Retrace targets for action values."""

from __future__ import annotations

from typing import Never, Unpack

from fastgae._call import NEW
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, BackendName, Misnamed, Numbers


@estimator(result="returns", words={"gae_lambda": "lambda_"})
def retrace(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    next_values: ArrayLike,
    ratios: ArrayLike,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    lambda_: float | ArrayLike = 1.0,
    time_axis: int = 0,
    out: ArrayT | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> ArrayT:
    r"""Compute off-policy targets for action values by Retrace.

    ::

        c_t = lambda_t min(ratio_t, 1)
        G_t = (r_t + gamma V'_t) + gamma c_{t+1} (G_{t+1} - Q_{t+1})

    The bootstrap ``gamma V'_t`` is left out if the step terminated. The second term is left out if the step terminated,
    was truncated, or is the last of the rollout. The kernel of ``gae`` gets ``c_{t+1}`` as lambda: it computes
    ``G - Q`` and then adds Q.

    Parameters
    ----------
    rewards, terminated, truncated, mask, gamma
        As in ``gae``, and so are ``time_axis``, ``stop_gradients``, ``num_threads`` and ``backend``.
    values : array like ``rewards``
        Q(s_t, a_t), the value of the action that was taken.
    next_values : array like ``rewards``
        V(s_{t+1}) before any reset: the mean of Q(s_{t+1}, a) over the actions of the target policy.
    ratios : array like ``rewards``
        Importance ratios pi(a_t|s_t) / mu(a_t|s_t) of the target policy over the policy that acted; not their
        logarithms, which are not refused.
    lambda_ : float in [0, 1], or an array of them, as for ``gamma``
        Decay of the trace at step t.
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
    Munos et al., "Safe and Efficient Off-Policy Reinforcement Learning", 2016 (equations 3 and 4). RLax's
    ``general_off_policy_returns_from_q_and_v`` computes the same from given ``c_t``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values, ratios = np.ones(3, np.float32), np.zeros(3, np.float32), np.array([1.0, 0.5, 2.0], np.float32)
    >>> fastgae.retrace(rewards, values, np.array([0, 0, 1]), next_values=values, ratios=ratios, gamma=0.5)
    array([1.375, 1.5  , 1.   ], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, None, next_values, None, None, None, mask, gamma, lambda_, time_axis,
        (None, NEW if out is None else out), None, None, None, False, False, None, None, "retrace", ratios,
    )  # fmt: skip
    return run(retrace, call, backend, num_threads, stop_gradients, unnamed, misnamed).returns
