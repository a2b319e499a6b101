"""PufferLib 3: the advantage kernel of its trainer, and a hook for it.

Add one line before you make ``PuffeRL``::

    fastgae.compat.pufferlib.install()
"""

from contextlib import ExitStack
from typing import Any

import numpy as np

from fastgae._interop import library_of, like, numbers_of, numpy_of
from fastgae.compat._hooks import Library
from fastgae.estimators.reverse_scan import reverse_scan

LIBRARY = Library("pufferlib", "3.0.0", "3.0.0")


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
    r"""Compute GAE with V-trace's clipped ratios, from rewards and flags that come one row late.

    ::

        delta_t = (r_{t+1} + gamma V_{t+1}) - V_t                         the bootstrap only where not terminals_{t+1}
        A_t     = rho_t delta_t + gamma lambda c_t A_{t+1}                the second term only where not terminals_{t+1}
        rho_t   = min(ratio_t, rho_clip),  c_t = min(ratio_t, c_clip)

    The last step of each segment gets no advantage: ``advantages`` keeps its number there. Truncation counts as
    termination.

    Parameters
    ----------
    values, rewards, terminals, ratio : float32 tensor of shape (segments, horizon)
    advantages : float32 tensor of shape (segments, horizon)
        The tensor to fill.

    Returns
    -------
    ``advantages``, filled; the same bits as PufferLib's CPU kernel.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.reverse_scan``.
    """
    if numpy_of(advantages).dtype.kind != "f":
        raise TypeError(f"advantages has dtype {advantages.dtype}; expected float32, to be filled with fractions")
    value, ratios = numbers_of(values), numbers_of(ratio)[:, :-1]
    going_on = 1 - numpy_of(terminals)[:, 1:]
    # PufferLib's kernel has all numbers in float32, the product of gamma and lambda included.
    discount, trace, rho_clip, c_clip = np.array([gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip], np.float32)
    # Not by fastgae.vtrace, because it returns the policy's advantages, and PufferLib's are the value targets minus V.
    targets = numbers_of(rewards)[:, 1:] + discount * value[:, 1:] * going_on
    deltas = np.minimum(ratios, rho_clip) * (targets - value[:, :-1])
    decay = discount * trace * np.minimum(ratios, c_clip) * going_on
    result = reverse_scan(deltas, decay, time_axis=1)
    advantages[:, :-1] = like(result, advantages) if library_of(advantages) == "torch" else result
    return advantages


def install() -> ExitStack:
    """Replace ``pufferlib.pufferl.compute_puff_advantage``; on a CPU, results are the same bits.

    Returns
    -------
    contextlib.ExitStack
        Its ``close()``, or the end of ``with install(): ...``, puts PufferLib's own function back.

    Raises
    ------
    RuntimeError
        The hook was not tested with the installed version, or its functions have other parameters. Nothing is replaced.
    """
    return LIBRARY.install({"pufferlib.pufferl:compute_puff_advantage": (compute_puff_advantage,)})
