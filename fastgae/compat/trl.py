"""TRL: ``PPOTrainer.compute_advantages``; OpenRLHF: ``get_advantages_and_returns``. Masked tokens count as zeros."""

from typing import Any

import numpy as np

from fastgae._canonical import Array, GAEResult
from fastgae._interop import like, numbers_of, numpy_of
from fastgae.compat._whiten import whitened
from fastgae.estimators.gae import gae


def compute_advantages(
    values: Any, rewards: Any, mask: Any, *, gamma: float = 1.0, lam: float = 0.95, whiten_rewards: bool = False
) -> tuple[Any, Any, Any]:
    r"""Values, whitened advantages and returns of responses as TRL computes them.

    ::

        A_t = (m_t r_t + gamma m_{t+1} V_{t+1}) - m_t V_t + gamma lambda A_{t+1}     0 after the last token
        R_t = A_t + m_t V_t
        advantages = (A - mean) / sqrt(variance + 1e-8)    at every token; moments of those in the mask, Bessel's

    No flags and no gates: a token out of the mask is one of value and reward 0, across which A is still discounted.
    With ``whiten_rewards`` rewards are m r / sqrt(variance + 1e-8), shifted back to their mean, before that.
    Without it values and returns are the same bits in float32. Whitening differs by the rounding of TRL's moments,
    which are float32 sums in an order of torch's; here they are of float64. 16-bit inputs are computed in float32.

    Parameters
    ----------
    values, rewards : (bs, response_length)
        Float32 or float64.
    mask : (bs, response_length), numbers that are 0 or 1
        1 at the tokens that the policy wrote.
    gamma, lam, whiten_rewards
        Of the trainer's ``config``, which the method finds in ``self``.

    Returns
    -------
    (values, advantages, returns), of the shape and kind of ``values``: values are those given times the mask.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``; ValueError where the mask has less than two tokens (at one, TRL gives NaN).

    Notes
    -----
    ``trl/trainer/ppo_trainer.py`` and ``trl/core.py``, version 0.11, the last with this trainer.
    """
    exists = numpy_of(mask) != 0
    value, reward = _zeroed(values, exists), _zeroed(rewards, exists)
    if whiten_rewards:
        reward = whitened(reward, exists, shift_mean=False)
    advantages, returns = _response(value, reward, gamma, lam)
    whitened_advantages = whitened(advantages, exists)
    return like(value, values), like(whitened_advantages, values, rewards), like(returns, values, rewards)


def get_advantages_and_returns(
    values: Any, rewards: Any, action_mask: Any, gamma: float, lambd: float
) -> tuple[Any, Any]:
    r"""Advantages and returns of responses as OpenRLHF computes them, the same bits in float32.

    ::

        A_t = (m_t r_t + gamma m_{t+1} V_{t+1}) - m_t V_t + gamma lambda A_{t+1}     0 after the last token
        R_t = A_t + m_t V_t

    The rule of ``compute_advantages``, not whitened.

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
    (advantages, returns), of the shape and kind of ``values``.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.

    Notes
    -----
    ``openrlhf/trainer/ppo_utils/experience_maker.py``, version 0.11.
    """
    exists = None if action_mask is None else numpy_of(action_mask) != 0
    advantages, returns = _response(_zeroed(values, exists), _zeroed(rewards, exists), gamma, lambd)
    return like(advantages, values, rewards), like(returns, values, rewards)


def _zeroed(array: Any, exists: Array | None) -> Array:
    """Times the mask, as the peers do it: -0 where a negative number was."""
    given = numbers_of(array)
    return given if exists is None else given * exists.astype(given.dtype)


def _response(values: Array, rewards: Array, gamma: float, gae_lambda: float) -> GAEResult:
    return gae(
        rewards,
        values,
        np.zeros(rewards.shape, bool),
        last_values=np.zeros_like(values[:, 0]),
        gamma=float(gamma),
        gae_lambda=float(gae_lambda),
        time_axis=1,
    )
