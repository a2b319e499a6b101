"""PufferLib 3, in ``pufferlib`` or ``pufferlib-core``: the advantage kernel of its trainer, and a hook for it.

Add one line before you create ``PuffeRL``::

    fastgae.compat.pufferlib.install()
"""

from contextlib import ExitStack
from typing import Any

from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library
from fastgae.estimators.reverse_scan import reverse_scan

LIBRARY = Library("pufferlib", "3.0.0", "3.0.23", also="pufferlib-core")


@refuses_misnamed
def compute_puff_advantage(
    values: Any,
    rewards: Any,
    terminals: Any,
    ratio: Any,
    advantages: ArrayT,
    gamma: float,
    gae_lambda: float,
    vtrace_rho_clip: float,
    vtrace_c_clip: float,
) -> ArrayT:
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
    dtype = getattr(advantages, "dtype", None)
    if "float" not in str(dtype):
        raise TypeError(f"advantages has dtype {dtype}; expected an array of float32, to be filled with fractions")
    filled: Any = advantages
    filled[:, :-1] = _advantages(
        values, rewards, terminals, ratio, advantages, gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip
    )
    return advantages


@anywhere("advantages: S H")
def _advantages(
    values: Numbers,
    rewards: Numbers,
    terminals: Flags,
    ratio: Numbers,
    advantages: Like[ArrayT],
    gamma: Coefficient,
    gae_lambda: Coefficient,
    vtrace_rho_clip: float,
    vtrace_c_clip: float,
) -> ArrayT:
    xp = namespace_of(advantages)
    # PufferLib's kernel computes everything in float32, also the product of gamma and lambda.
    discount, trace, highest_rho, highest_c = (
        xp.asarray(number, dtype=xp.float32) for number in (gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip)
    )
    ratios, going_on = ratio[:, :-1], 1 - xp.asarray(terminals[:, 1:], dtype=values.dtype)
    # fastgae.vtrace does not fit: it returns the policy's advantages, but PufferLib's are the value targets minus V.
    targets = rewards[:, 1:] + discount * values[:, 1:] * going_on
    deltas = xp.minimum(ratios, highest_rho) * (targets - values[:, :-1])
    decay = discount * trace * xp.minimum(ratios, highest_c) * going_on
    return reverse_scan(deltas, decay, time_axis=1)


def install() -> ExitStack:
    """Replace ``pufferlib.pufferl.compute_puff_advantage``; on a CPU, results are the same bits.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    return LIBRARY.install({"pufferlib.pufferl:compute_puff_advantage": (compute_puff_advantage,)})
