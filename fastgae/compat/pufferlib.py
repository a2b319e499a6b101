"""PufferLib 3: the advantage that its trainer asks a kernel for."""

from typing import Any

import numpy as np

from fastgae._interop import library_of, like, numbers_of, numpy_of
from fastgae.estimators.reverse_scan import reverse_scan


def compute_puff_advantage(
    values: Any,
    rewards: Any,
    terminals: Any,
    ratio: Any,
    advantages: Any,
    gamma: float,
    gae_lambda: float,
    vtrace_rho_clip: float,
    vtrace_c_clip: float,
) -> Any:
    r"""GAE with V-trace's clipped ratios, of rewards and flags that come one row late.

    ::

        delta_t = (r_{t+1} + gamma V_{t+1}) - V_t                         the bootstrap only where not terminals_{t+1}
        A_t     = rho_t delta_t + gamma lambda c_t A_{t+1}                the second term only where not terminals_{t+1}
        rho_t   = min(ratio_t, rho_clip),  c_t = min(ratio_t, c_clip)

    The last step of each segment gives nothing: its advantage is left as it is. Truncation is termination (policy a).

    Parameters
    ----------
    values, rewards, terminals, ratio : float32 tensor of shape (segments, horizon)
    advantages : float32 tensor of shape (segments, horizon)
        To fill.

    Returns
    -------
    ``advantages``; the same bits as the CPU kernel gives.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.reverse_scan``.
    """
    if numpy_of(advantages).dtype.kind != "f":
        raise TypeError(f"advantages has dtype {advantages.dtype}; expected float32, to be filled with fractions")
    value, ratios = numbers_of(values), numbers_of(ratio)[:, :-1]
    going_on = 1 - numpy_of(terminals)[:, 1:]
    # The kernel has all its numbers in float32, gamma lambda too.
    discount, trace, rho_clip, c_clip = np.array([gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip], np.float32)
    # Not fastgae.vtrace: its advantages are the policy's, and these are those of the value targets.
    targets = numbers_of(rewards)[:, 1:] + discount * value[:, 1:] * going_on
    deltas = np.minimum(ratios, rho_clip) * (targets - value[:, :-1])
    decay = discount * trace * np.minimum(ratios, c_clip) * going_on
    result = reverse_scan(deltas, decay, time_axis=1)
    advantages[:, :-1] = like(result, advantages) if library_of(advantages) == "torch" else result
    return advantages
