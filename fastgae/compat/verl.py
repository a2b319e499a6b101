"""verl: ``compute_gae_advantage_return`` of single tokens, the mask carried over."""

from typing import Any

import numpy as np

from fastgae.compat._tensors import like, numpy_of
from fastgae.compat._whiten import whitened
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan


def compute_gae_advantage_return(
    token_level_rewards: Any, values: Any, response_mask: Any, gamma: float, lam: float
) -> tuple[Any, Any]:
    r"""Whitened advantages and returns of responses as verl computes them.

    ::

        A_t = (r_t + gamma V') - V_t + gamma lambda A'     V', A': of the next token in the mask; 0 after the last
        A_t = A'                                           at tokens out of the mask, which are skipped
        R_t = A_t + V_t                                    at every token
        advantages = (A - mean) / sqrt(variance + 1e-8)    at every token; moments of those in the mask, Bessel's

    No flags: a response ends for good. The returns are the same bits in float32. The advantages differ by the rounding
    of verl's moments, which are float32 sums in an order of torch's; here they are of float64. 16-bit inputs are
    computed in float32. What is behind the mask is left out, verl multiplies it by 0.

    Parameters
    ----------
    token_level_rewards, values : (bs, response_length)
        Float32 or float64.
    response_mask : (bs, response_length), numbers that are 0 or 1
        1 at the tokens that the policy wrote.
    gamma, lam : float
        Discount, and decay of the trace.

    Returns
    -------
    (advantages, returns), of the shape, kind and dtype of ``token_level_rewards``.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``; ValueError where the mask has less than two tokens, as in verl.

    Notes
    -----
    ``verl/trainer/ppo/core_algos.py`` and ``verl/utils/torch_functional.py``, version 0.9.
    """
    rewards, value = numpy_of(token_level_rewards), numpy_of(values)
    mask = numpy_of(response_mask) != 0
    written = gae(
        rewards,
        value,
        np.zeros_like(mask),
        last_values=np.zeros_like(value[:, 0]),
        mask=mask,
        gamma=float(gamma),
        gae_lambda=float(lam),
        time_axis=1,
    ).advantages
    carried = reverse_scan(written, (~mask).astype(written.dtype), time_axis=1)
    return like(whitened(carried, mask), token_level_rewards), like(carried + value, token_level_rewards)
