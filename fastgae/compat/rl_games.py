"""rl_games: ``A2CBase.discount_values`` and ``discount_values_masks``, and a hook for its agents.

Add one line before ``Runner.run``::

    fastgae.compat.rl_games.install()
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library, taking
from fastgae.estimators.gae import gae

LIBRARY = Library("rl_games", "1.6.5", "2.0.0")
A2C = "rl_games.common.a2c_common:A2CBase"


@anywhere("mb_rewards: T N V", fdones="N", last_extrinsic_values="N V", mb_fdones="T N")
def discount_values(
    fdones: Flags,
    last_extrinsic_values: Numbers,
    mb_fdones: Flags,
    mb_extrinsic_values: Numbers,
    mb_rewards: Like[ArrayT],
    *,
    gamma: Coefficient,
    tau: Coefficient,
) -> ArrayT:
    r"""Compute advantages like rl_games, the same bits in float32.

    ::

        d_t = mb_fdones[t + 1],  d_{T-1} = fdones         flag t belongs to observation t
        A_t = (r_t + gamma B_t V_{t+1}) - V_t + gamma tau B_t A_{t+1}     B_t = 1 - d_t

    Truncation ends an episode like termination; before the call, rl_games has added gamma V(s_t) to the reward of a
    step that timed out. Where a flag is set, fastgae leaves the term out, but rl_games multiplies it by 0.

    Parameters
    ----------
    fdones : (N,)
        Flags after the last step: 1 where the observation that follows is the first of an episode.
    last_extrinsic_values : (N, V)
        Values after the last step, from V value heads.
    mb_fdones : (T, N)
        Flags before each step.
    mb_extrinsic_values, mb_rewards : (T, N, V)
        Float32 or float64.
    gamma, tau : float
        The agent's ``gamma`` and ``tau`` (lambda), which rl_games's method reads from ``self``.

    Returns
    -------
    (T, N, V), of the type of ``mb_rewards``: the advantages, not normalised. Add the values to get the returns.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``rl_games/common/a2c_common.py``, version 1.6.
    """
    return gae(
        mb_rewards,
        mb_extrinsic_values,
        _ends(fdones, mb_fdones, mb_rewards),
        last_values=last_extrinsic_values,
        gamma=gamma,
        gae_lambda=tau,
    ).advantages


@anywhere("mb_rewards: T N V", fdones="N", last_extrinsic_values="N V", mb_fdones="T N", mb_masks="T N")
def discount_values_masks(
    fdones: Flags,
    last_extrinsic_values: Numbers,
    mb_fdones: Flags,
    mb_extrinsic_values: Numbers,
    mb_rewards: Like[ArrayT],
    mb_masks: Flags,
    *,
    gamma: Coefficient,
    tau: Coefficient,
) -> ArrayT:
    r"""Compute advantages of padded sequences (recurrent policies) like rl_games, the same bits in float32.

    ::

        A_t = m_t ((r_t + gamma B_t V_{t+1}) - V_t + gamma tau B_t A_{t+1})     B_t = 1 - d_t

    The recursion is the same as in ``discount_values``, but a step outside the mask has advantage 0 and passes none on.
    The step before it still bootstraps from its value, as a truncated step does.

    Parameters
    ----------
    fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards, gamma, tau
        As in ``discount_values``.
    mb_masks : (T, N)
        1 where the step exists.

    Returns
    -------
    (T, N, V), of the type of ``mb_rewards``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``rl_games/common/a2c_common.py``, version 1.6.
    """
    xp = namespace_of(mb_rewards)
    mask = xp.broadcast_to((mb_masks != 0)[..., None], mb_rewards.shape)
    advantages = gae(
        mb_rewards,
        mb_extrinsic_values,
        _ends(fdones, mb_fdones, mb_rewards),
        xp.concatenate([~mask, xp.zeros_like(mask[:1])])[1:],
        next_values=xp.concatenate([mb_extrinsic_values, last_extrinsic_values[None]])[1:],
        gamma=gamma,
        gae_lambda=tau,
    ).advantages
    return advantages * mask


def install() -> ExitStack:
    """Replace ``discount_values`` and ``discount_values_masks`` of ``A2CBase``, and so of all agents.

    In a version without ``discount_values_masks``, replace only the first. Results are the same bits in float32.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    places = {f"{A2C}.{name}": (method,) for name, method in METHODS.items()}
    # No agent calls discount_values_masks, and rl_games removed it after 1.6.5.
    return LIBRARY.install(places, may_lack=(f"{A2C}.discount_values_masks",))


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of an agent that calls a function with the agent's gamma and tau."""

    @taking(" ".join(name for name in inspect.signature(function).parameters if name not in ("gamma", "tau")))
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        return function(*positional, **named, gamma=self.gamma, tau=self.tau)

    return method


METHODS = {function.__name__: _method(function) for function in (discount_values, discount_values_masks)}


def _ends(fdones: Any, mb_fdones: Any, rewards: Any) -> Any:
    """Return the flags of the steps, in the shape of rewards: the flags of the observations that follow them."""
    xp = namespace_of(rewards)
    return xp.broadcast_to(xp.concatenate([mb_fdones, fdones[None]])[1:, :, None], rewards.shape)
