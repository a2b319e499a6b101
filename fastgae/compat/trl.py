"""TRL: ``PPOTrainer.compute_advantages``, where masked tokens are zeros, and GRPO."""

from typing import Literal

import numpy as np

from fastgae._canonical.arguments import shown
from fastgae._typing import ArrayT, Scale
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere
from fastgae.compat._whiten import whitened
from fastgae.estimators.gae import gae
from fastgae.estimators.group_advantages import group_advantages

SCALES: dict[bool | str, Scale] = {"group": "std", True: "std", "batch": "batch", "none": "none", False: "none"}


@anywhere("values: B L")
def compute_advantages(
    values: Like[ArrayT],
    rewards: Numbers,
    mask: Flags,
    *,
    gamma: Coefficient = 1.0,
    lam: Coefficient = 0.95,
    whiten_rewards: bool = False,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    r"""Compute values, whitened advantages and returns of responses like TRL.

    ::

        A_t = (m_t r_t + gamma m_{t+1} V_{t+1}) - m_t V_t + gamma lambda A_{t+1}     0 after the last token
        R_t = A_t + m_t V_t
        advantages = (A - mean) / sqrt(variance + 1e-8)    at every token; moments over the mask, Bessel's variance

    There are no flags: a token outside the mask has value 0 and reward 0, and A is still discounted across
    it. With ``whiten_rewards``, the rewards m r are first whitened over the mask and shifted back to their mean.
    Without it, values and returns are the same bits in float32. Whitening differs by the rounding of the moments,
    because torch adds up float32 numbers in its own order, and fastgae adds up float64 numbers. 16-bit inputs are
    computed in float32.

    Parameters
    ----------
    values, rewards : (bs, response_length)
        Float32 or float64.
    mask : (bs, response_length), numbers that are 0 or 1
        1 at the tokens that the policy wrote.
    gamma, lam, whiten_rewards
        Settings in the trainer's ``config``, which TRL's method reads from ``self``.

    Returns
    -------
    (values, advantages, returns), of the shape and library of ``values``. The values are multiplied by the mask.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``; ValueError if the mask has less than two tokens; with one, TRL gives NaN, as fastgae does
        on a GPU and in code that torch compiles, where fastgae does not check the mask.

    Notes
    -----
    ``trl/trainer/ppo_trainer.py`` and ``trl/core.py``, version 0.11, the last with this trainer.
    """
    exists = mask != 0
    value, reward = values * exists, rewards * exists  # as TRL does, so that negative numbers outside become -0
    if whiten_rewards:
        reward = whitened(reward, exists, shift_mean=False)
    advantages, returns = gae(reward, value, terminated=None, last_values=0.0, gamma=gamma, gae_lambda=lam, time_axis=1)
    return value, whitened(advantages, exists), returns


@anywhere("rewards: N")
def grpo_advantages(
    rewards: Like[ArrayT], num_generations: int, scale_rewards: bool | Literal["group", "batch", "none"] = "group"
) -> ArrayT:
    r"""Compute the advantages of completions like TRL's ``GRPOTrainer``, to the rounding of the moments.

    ::

        A = (r - mean) / (std + 1e-4)     the group's mean; std with Bessel's correction, of the group or of the batch
        A = r - mean                      with ``scale_rewards="none"``

    TRL has no function for these lines, which are in its method ``_generate_and_score_completions``. A completion whose
    reward is NaN was not scored: it is left out of the moments, and its advantage is 0. Tensors are on the CPU.

    Parameters
    ----------
    rewards : (batch,)
        Float32 or float64; the completions of a prompt follow each other.
    num_generations : int
        The number of completions per prompt.
    scale_rewards : "group", "batch" or "none"
        Whose standard deviation to divide by. True is "group", and False is "none".

    Returns
    -------
    advantages, of the shape and type of ``rewards``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.group_advantages``; ValueError if ``num_generations`` does not divide the number of rewards.

    Notes
    -----
    ``trl/trainer/grpo_trainer.py``, version 1.16.
    """
    count = rewards.shape[0]
    if num_generations < 1 or count % num_generations:
        raise ValueError(f"num_generations must divide the number of rewards, {count}, got {num_generations}")
    if not isinstance(scale_rewards, bool | str) or scale_rewards not in SCALES:
        raise ValueError(f'scale_rewards must be "group", "batch", "none", True or False, got {shown(scale_rewards)}')
    groups = np.arange(count) // num_generations
    return group_advantages(rewards, groups, scale=SCALES[scale_rewards], eps=1e-4, mask=rewards == rewards)
