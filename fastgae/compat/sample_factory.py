"""sample-factory: ``gae_advantages``, and a hook for its learner.

Add one line before you train, in the process of the learner (``--serial_mode=True`` runs it in yours)::

    fastgae.compat.sample_factory.install()
"""

from contextlib import ExitStack

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library
from fastgae.estimators.reverse_scan import reverse_scan

LIBRARY = Library("sample-factory", "2.0.3", "2.1.1")


@anywhere("rewards: E T", values="E T+1", valids="E T+1")
def gae_advantages(
    rewards: Like[ArrayT], dones: Flags, values: Numbers, valids: Flags, γ: Coefficient, λ: Coefficient
) -> ArrayT:
    r"""Compute advantages like sample-factory, the same bits in float32.

    ::

        x_t = (r_t - V_t) m_t + (1 - d_t) gamma V_{t+1} m_{t+1}       d: dones
        A_t = x_t + (gamma lambda m_t + 1 - m_t)(1 - d_t) A_{t+1}     m: valids

    A step that is not valid passes A of the next step on without a discount. Truncation ends an episode like
    termination; before the call, sample-factory has added gamma V(s_t) to the reward of a step that timed out. This
    function calls ``reverse_scan``, because the order of sums and the mask rule differ from ``gae``. As in
    sample-factory, a flag multiplies by 0, so a NaN in that term spreads. ``γ`` is the discount, and ``λ`` the
    decay of the trace, each a float.

    Parameters
    ----------
    rewards, dones : (E, T)
        Rewards in float32 or float64, and flags of each step.
    values : (E, T + 1)
        V of each observation; the last column is V after the last step.
    valids : (E, T + 1)
        1 where the policy learns from the step. The last column repeats the column of the last step.

    Returns
    -------
    (E, T), of the type of ``rewards``: the advantages, not normalised.
        Add valids × values to get the returns.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.reverse_scan``.

    Notes
    -----
    ``sample_factory/algo/utils/rl_utils.py``, version 2.1.
    """
    xp = namespace_of(rewards)
    valid, going_on = xp.asarray(valids, dtype=rewards.dtype), 1 - xp.asarray(dones, dtype=rewards.dtype)
    terms = (rewards - values[:, :-1]) * valid[:, :-1] + going_on * (γ * values[:, 1:] * valid[:, 1:])
    decay = (γ * λ * valid[:, :-1] + (1 - valid[:, :-1])) * going_on
    return reverse_scan(terms, decay, time_axis=1)


def install() -> ExitStack:
    """Replace ``gae_advantages`` in sample-factory's learner; results are the same bits in float32.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    return LIBRARY.install({"sample_factory.algo.learning.learner:gae_advantages": (gae_advantages,)})
