"""verl: GAE of single tokens, GRPO, RLOO and the baseline of REINFORCE++, and a hook for its trainers.

Add one line before you create the trainer, in the process in which the trainer runs::

    fastgae.compat.verl.install()
"""

import importlib
import inspect
import math
from contextlib import ExitStack
from typing import Any

import numpy as np

from fastgae._canonical.arguments import numbered
from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere
from fastgae.compat._hooks import Library
from fastgae.compat._whiten import whitened
from fastgae.estimators.gae import gae
from fastgae.estimators.group_advantages import group_advantages

LIBRARY = Library("verl", "0.7.1", "0.9.1")


@anywhere("token_level_rewards: B L")
def compute_gae_advantage_return(
    token_level_rewards: Like[ArrayT], values: Numbers, response_mask: Flags, gamma: Coefficient, lam: Coefficient
) -> tuple[ArrayT, ArrayT]:
    r"""Compute whitened advantages and returns of responses like verl.

    ::

        A_t = (r_t + gamma V') - V_t + gamma lambda A'     V', A': of the next token in the mask; 0 after the last
        A_t = A'                                           at tokens outside the mask, which are skipped
        R_t = A_t + V_t                                    at every token
        advantages = (A - mean) / sqrt(variance + 1e-8)    at every token; moments over the mask, Bessel's variance

    There are no flags, because a response ends for good. The returns are the same bits in float32. The advantages
    differ by the rounding of the moments, because torch adds up float32 numbers in its own order, and fastgae adds up
    float64 numbers. 16-bit inputs are computed in float32. fastgae leaves masked terms out, but verl multiplies them by
    0.

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
    (advantages, returns), of the shape and type of ``token_level_rewards``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``; ValueError if the mask has less than two tokens, as in verl; on a GPU, and in code that
        torch compiles, fastgae does not check the mask, and the advantages are NaN.

    Notes
    -----
    ``verl/trainer/ppo/core_algos.py`` and ``verl/utils/torch_functional.py``, version 0.9.
    """
    advantages, returns = _carried(token_level_rewards, values, response_mask, gamma, lam)
    return whitened(advantages, response_mask != 0), returns


@anywhere("token_level_rewards: B L", index="B")
def compute_grpo_outcome_advantage(
    token_level_rewards: Like[ArrayT],
    response_mask: Flags,
    index: Any,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute the advantages of responses to the same prompt like verl's GRPO, to the rounding of the moments.

    ::

        A = (r - mean) / (std + epsilon)     r: the sum over the tokens; moments of the group, Bessel's correction
        A = r - mean                         without ``norm_adv_by_std_in_grpo``, as in Dr. GRPO

    Every token in the mask gets A, and all others 0. The mean of a response that is alone in its group is 0, and its
    standard deviation 1. Tensors are on the CPU. Arguments that verl does not use are left out.

    Parameters
    ----------
    token_level_rewards : (bs, response_length)
        Float32 or float64.
    response_mask : (bs, response_length), numbers that are 0 or 1
        1 at the tokens that the policy wrote.
    index : (bs,), integers or strings
        The prompt of each response.
    epsilon : float
        Added to the standard deviation.
    norm_adv_by_std_in_grpo : bool
        Divide by the standard deviation.

    Returns
    -------
    (advantages, returns), of the shape and type of ``token_level_rewards``. They are equal.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.group_advantages``.

    Notes
    -----
    ``verl/trainer/ppo/core_algos.py``, version 0.9.
    """
    if not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon}")
    scale = "std" if norm_adv_by_std_in_grpo else "none"
    alone = 1.0 / (1.0 + epsilon) if norm_adv_by_std_in_grpo else 1.0
    advantages = _by_group(token_level_rewards, index, alone, scale=scale, eps=epsilon)
    return _at_tokens(advantages, response_mask)


@anywhere("token_level_rewards: B L", index="B")
def compute_rloo_outcome_advantage(
    token_level_rewards: Like[ArrayT], response_mask: Flags, index: Any
) -> tuple[ArrayT, ArrayT]:
    r"""Compute the advantages of responses to the same prompt like verl's RLOO, to the rounding of the moments.

    ::

        A = r - mean of the other responses of the group     r, if there are no others

    verl's ``rloo_vectorized`` gives 0 if there are no others, as ``fastgae.group_advantages`` does.

    Arguments, results and errors are those of ``compute_grpo_outcome_advantage``.
    """
    return _at_tokens(_by_group(token_level_rewards, index, baseline="leave_one_out", scale="none"), response_mask)


@anywhere("token_level_rewards: B L", index="B")
def compute_reinforce_plus_plus_baseline_outcome_advantage(
    token_level_rewards: Like[ArrayT], response_mask: Flags, index: Any
) -> tuple[ArrayT, ArrayT]:
    r"""Compute whitened advantages of responses to the same prompt like verl's REINFORCE++-baseline.

    ::

        A = r - mean                                        of the group; r, if the response is alone
        advantages = (A - mean) / sqrt(variance + 1e-8)     moments over the tokens in the mask, Bessel's variance

    Arguments, results and errors are those of ``compute_grpo_outcome_advantage``. ValueError
    if the mask has less than two tokens.
    """
    advantages, _ = _at_tokens(_by_group(token_level_rewards, index, scale="none"), response_mask)
    whole: Any = np.where(response_mask, whitened(advantages, response_mask), 0)
    return whole, whole


def _by_group(rewards: Any, index: Any, alone: float = 1.0, **how: Any) -> Any:
    """Return the advantage of each response; ``alone`` times its reward if its group has no other."""
    scores = rewards.sum(axis=1)
    group = numbered("index", index)
    advantages = group_advantages(scores, group, **how)
    return np.where(np.bincount(group)[group] == 1, scores * alone, advantages)


def _at_tokens(advantages: Any, mask: Any) -> tuple[Any, Any]:
    tokens: Any = np.where(mask, advantages[:, np.newaxis], 0)
    return tokens, tokens


def install() -> ExitStack:
    """Replace ``verl.trainer.ppo.core_algos.compute_gae_advantage_return`` by a function that calls fastgae.

    Its entry "gae" in verl's registry of estimators, which ``get_adv_estimator_fn`` reads, is replaced as well.
    verl's own whitening stays, so that the advantages, too, are the same bits in float32. With 16-bit values, fastgae
    computes in float32, but verl rounds gamma V' to 16 bits: the bits are the same if rewards are float32 and gamma is
    1, verl's default.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    names = ("compute_gae_advantage_return", "ADV_ESTIMATOR_REGISTRY.gae")
    return LIBRARY.install({f"verl.trainer.ppo.core_algos:{name}": (_whitened_by_verl,) for name in names})


def _whitened_by_verl(
    token_level_rewards: Any, values: Any, response_mask: Any, gamma: float, lam: float
) -> tuple[Any, Any]:
    advantages, returns = _not_whitened(token_level_rewards, values, response_mask, gamma, lam)
    whiten = importlib.import_module("verl.utils.torch_functional").masked_whiten
    return whiten(advantages, response_mask), returns


@anywhere("token_level_rewards: B L")
def _not_whitened(
    token_level_rewards: Like[ArrayT], values: Numbers, response_mask: Flags, gamma: Coefficient, lam: Coefficient
) -> tuple[ArrayT, ArrayT]:
    """Return advantages and returns; a token outside the mask gets the advantage of the next token inside it."""
    how = {"mask": response_mask != 0, "gamma": gamma, "gae_lambda": lam, "carry_over": True, "time_axis": 1}
    return gae(token_level_rewards, values, terminated=None, last_values=0.0, **how)


_carried = inspect.unwrap(_not_whitened)  # for arguments that have been read
