"""sample-factory: ``gae_advantages``."""

from typing import Any

from fastgae._interop import like, numbers_of, numpy_of
from fastgae.estimators.reverse_scan import reverse_scan


def gae_advantages(rewards: Any, dones: Any, values: Any, valids: Any, γ: float, λ: float) -> Any:
    r"""Advantages as sample-factory computes them, the same bits in float32.

    ::

        x_t = (r_t - V_t) m_t + (1 - d_t) gamma V_{t+1} m_{t+1}       d: direct flags
        A_t = x_t + (gamma lambda m_t + 1 - m_t)(1 - d_t) A_{t+1}     m: valids

    A step that is not valid hands A on undiscounted, and its own A is that of the next step. Truncation ends an
    episode like termination; sample-factory adds gamma V(s_t) to the reward of a step that timed out before it calls
    this. Its order of sums and its mask rule are not those of ``gae``, so this is ``reverse_scan``. As in
    sample-factory, closed gates multiply by 0: NaN behind them gets through.

    Parameters
    ----------
    rewards, dones : (E, T)
        Rewards in float32 or float64, and flags of each step.
    values : (E, T + 1)
        V of each observation, the last column after the last step.
    valids : (E, T + 1)
        1 where the step is to be learned from; the last column is that of the last step.
    γ, λ : float
        Discount, and decay of the trace.

    Returns
    -------
    (E, T), of the kind of ``rewards``: the advantages, not normalised.
        Returns are these plus valids × values.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.reverse_scan``.

    Notes
    -----
    ``sample_factory/algo/utils/rl_utils.py``, version 2.1.
    """
    reward, value = numbers_of(rewards), numbers_of(values)
    valid, going_on = numpy_of(valids).astype(reward.dtype), 1 - numpy_of(dones).astype(reward.dtype)
    terms = (reward - value[:, :-1]) * valid[:, :-1] + going_on * (γ * value[:, 1:] * valid[:, 1:])
    decay = (γ * λ * valid[:, :-1] + (1 - valid[:, :-1])) * going_on
    return like(reverse_scan(terms, decay, time_axis=1), rewards, values)
