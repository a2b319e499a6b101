"""rl_games: ``A2CBase.discount_values`` and ``discount_values_masks``, and their place in its agents.

One line before ``Runner.run``::

    fastgae.compat.rl_games.install()
"""

import importlib
from contextlib import ExitStack
from typing import Any

import numpy as np

from fastgae._canonical import Array
from fastgae._interop import like, numbers_of, numpy_of
from fastgae.compat._hooks import replace
from fastgae.estimators.gae import gae


def discount_values(
    fdones: Any,
    last_extrinsic_values: Any,
    mb_fdones: Any,
    mb_extrinsic_values: Any,
    mb_rewards: Any,
    *,
    gamma: float,
    tau: float,
) -> Any:
    r"""Advantages as rl_games computes them, the same bits in float32.

    ::

        d_t = mb_fdones[t + 1],  d_{T-1} = fdones         flags are shifted
        A_t = (r_t + gamma B_t V_{t+1}) - V_t + gamma tau B_t A_{t+1}     B_t = 1 - d_t

    Truncation ends an episode like termination; rl_games adds gamma V(s_t) to the reward of a step that timed out
    before it calls this. Where a gate is closed its term is left out, rl_games multiplies it by 0.

    Parameters
    ----------
    fdones : (N,)
        Flags after the last step: the observation that follows is the first of an episode.
    last_extrinsic_values : (N, V)
        Values after the last step, of V value heads.
    mb_fdones : (T, N)
        Flags before each step.
    mb_extrinsic_values, mb_rewards : (T, N, V)
        Float32 or float64.
    gamma, tau : float
        The agent's ``gamma`` and ``tau`` (lambda), which the method finds in ``self``.

    Returns
    -------
    (T, N, V), of the kind of ``mb_rewards``: the advantages, not normalised. Returns are these plus values.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.

    Notes
    -----
    ``rl_games/common/a2c_common.py``, version 1.6.
    """
    rewards = numbers_of(mb_rewards)
    advantages = gae(
        rewards,
        numbers_of(mb_extrinsic_values),
        _ends(fdones, mb_fdones, rewards),
        last_values=numbers_of(last_extrinsic_values),
        gamma=gamma,
        gae_lambda=tau,
    ).advantages
    return like(advantages, mb_rewards, mb_extrinsic_values, last_extrinsic_values)


def discount_values_masks(
    fdones: Any,
    last_extrinsic_values: Any,
    mb_fdones: Any,
    mb_extrinsic_values: Any,
    mb_rewards: Any,
    mb_masks: Any,
    *,
    gamma: float,
    tau: float,
) -> Any:
    r"""Advantages of padded sequences (recurrent policies), the same bits as rl_games in float32.

    ::

        A_t = m_t ((r_t + gamma B_t V_{t+1}) - V_t + gamma tau B_t A_{t+1})     B_t = 1 - d_t

    As ``discount_values``, and a step out of the mask has advantage 0 and hands none on: the step before it still
    bootstraps from its value, as at a truncated step.

    Parameters
    ----------
    fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards, gamma, tau
        As in ``discount_values``.
    mb_masks : (T, N)
        1 where the step exists.

    Returns
    -------
    (T, N, V), of the kind of ``mb_rewards``.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.

    Notes
    -----
    ``rl_games/common/a2c_common.py``, version 1.6.
    """
    rewards, values, last_values = map(numbers_of, (mb_rewards, mb_extrinsic_values, last_extrinsic_values))
    mask = np.broadcast_to(numpy_of(mb_masks)[..., np.newaxis] != 0, rewards.shape)
    advantages = gae(
        rewards,
        values,
        _ends(fdones, mb_fdones, rewards),
        np.concatenate([~mask[1:], np.zeros_like(mask[:1])]),
        next_values=np.concatenate([values[1:], last_values[np.newaxis]]),
        gamma=gamma,
        gae_lambda=tau,
    ).advantages
    return like(advantages * mask.astype(rewards.dtype), mb_rewards, mb_extrinsic_values, last_extrinsic_values)


def install() -> ExitStack:
    """``A2CBase.discount_values`` and ``discount_values_masks``, of all agents, become the functions of this module.

    The same bits in float32.

    Returns
    -------
    contextlib.ExitStack
        For good, or ``with install(): ...``; its ``close()`` puts the methods of rl_games back.
    """
    a2c = importlib.import_module("rl_games.common.a2c_common").A2CBase
    return replace(a2c, discount_values=_discount_values, discount_values_masks=_discount_values_masks)


def _discount_values(self: Any, *arrays: Any) -> Any:
    return discount_values(*arrays, gamma=self.gamma, tau=self.tau)


def _discount_values_masks(self: Any, *arrays: Any) -> Any:
    return discount_values_masks(*arrays, gamma=self.gamma, tau=self.tau)


def _ends(fdones: Any, mb_fdones: Any, rewards: Array) -> Array:
    """Like rewards: the flag of each step, from those before it and those after the last."""
    ends = np.concatenate([numpy_of(mb_fdones)[1:], numpy_of(fdones)[np.newaxis]])
    return np.broadcast_to(ends[..., np.newaxis], rewards.shape)
