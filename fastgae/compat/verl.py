"""verl: ``compute_gae_advantage_return`` of single tokens, the mask carried over, and its place in verl's trainers.

One line before the trainer is made, in the process that it runs in::

    fastgae.compat.verl.install()
"""

import importlib
from contextlib import ExitStack
from typing import Any

import numpy as np

from fastgae._canonical import Array
from fastgae._interop import like, numbers_of, numpy_of
from fastgae.compat._hooks import replace
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
    (advantages, returns), of the shape and kind of ``token_level_rewards``.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``; ValueError where the mask has less than two tokens, as in verl.

    Notes
    -----
    ``verl/trainer/ppo/core_algos.py`` and ``verl/utils/torch_functional.py``, version 0.9.
    """
    mask = numpy_of(response_mask) != 0
    advantages, returns = _carried(numbers_of(token_level_rewards), numbers_of(values), mask, gamma, lam)
    given = token_level_rewards, values
    return like(whitened(advantages, mask), *given), like(returns, *given)


def install() -> ExitStack:
    """``verl.trainer.ppo.core_algos.compute_gae_advantage_return`` becomes the one of this module.

    verl's own whitening stays, so that the advantages are the same bits in float32 as well. With values of 16 bits, the
    recursion is in float32 where verl rounds gamma V' to 16 bits: the same bits for a gamma of 1, verl's default.

    Returns
    -------
    contextlib.ExitStack
        For good, or ``with install(): ...``; its ``close()`` puts verl's own function back.
    """
    core_algos = importlib.import_module("verl.trainer.ppo.core_algos")
    return replace(core_algos, compute_gae_advantage_return=_whitened_by_verl)


def _whitened_by_verl(
    token_level_rewards: Any, values: Any, response_mask: Any, gamma: float, lam: float
) -> tuple[Any, Any]:
    rewards, mask = numbers_of(token_level_rewards), numpy_of(response_mask) != 0
    advantages, returns = (
        like(array, token_level_rewards, values) for array in _carried(rewards, numbers_of(values), mask, gamma, lam)
    )
    whiten = importlib.import_module("verl.utils.torch_functional").masked_whiten
    return whiten(advantages, response_mask), returns


def _carried(rewards: Array, values: Array, mask: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """Advantages, carried over the tokens out of the mask, and returns."""
    written = gae(
        rewards,
        values,
        np.zeros_like(mask),
        last_values=np.zeros_like(values[:, 0]),
        mask=mask,
        gamma=float(gamma),
        gae_lambda=float(lam),
        time_axis=1,
    ).advantages
    advantages: Array = reverse_scan(written, (~mask).astype(written.dtype), time_axis=1)
    return advantages, advantages + values
