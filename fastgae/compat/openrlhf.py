"""OpenRLHF: ``get_advantages_and_returns``."""

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere
from fastgae.estimators.gae import gae


@anywhere("values: B L")
def get_advantages_and_returns(
    values: Like[ArrayT], rewards: Numbers, action_mask: Flags | None, gamma: Coefficient, lambd: Coefficient
) -> tuple[ArrayT, ArrayT]:
    r"""Compute advantages and returns of responses like OpenRLHF, the same bits in float32.

    ::

        A_t = (m_t r_t + gamma m_{t+1} V_{t+1}) - m_t V_t + gamma lambda A_{t+1}     0 after the last token
        R_t = A_t + m_t V_t

    Masked tokens are zeros, and A is discounted across them, as in TRL.

    Parameters
    ----------
    values, rewards : (batch, response_length)
        Float32 or float64.
    action_mask : (batch, response_length), numbers that are 0 or 1, or None
        1 at the tokens that the policy wrote.
    gamma, lambd : float
        Discount, and decay of the trace.

    Returns
    -------
    (advantages, returns), of the shape and type of ``values``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``openrlhf/trainer/ppo_utils/experience_maker.py``, version 0.11.
    """
    exists = True if action_mask is None else action_mask != 0
    value, reward = values * exists, rewards * exists
    advantages, returns = gae(
        reward, value, terminated=None, last_values=0.0, gamma=gamma, gae_lambda=lambd, time_axis=1
    )
    return advantages, returns
