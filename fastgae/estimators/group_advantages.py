"""Advantages of answers relative to the other answers of their group, without values."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from fastgae._call import Array
from fastgae._canonical import as_labels, frame_of, numbered, of_one_dtype, shown
from fastgae._declared import public
from fastgae._exact_sums import means_by_group
from fastgae._typing import ArrayLike, ArrayT, Baseline, Numbers, Scale
from fastgae.estimators.normalize import as_ddof, as_eps


@public
def group_advantages(
    rewards: ArrayT | Numbers,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    baseline: Baseline | None = "mean",
    scale: Scale | None = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    mask: ArrayLike | None = None,
) -> ArrayT:
    r"""Compare the reward of each answer with the rewards of the other answers to the same prompt.

    ::

        A_i    = (r_i - b_i) / (std_i + eps)
        b_i    = sum of r / n                     baseline="mean": over the n answers of the group
                 sum of r / (n - 1)               baseline="leave_one_out": over the other answers
                 0                                baseline="none"
        std_i  = sqrt(sum of (r - mean)^2 / (count - ddof))     scale="std": over the group, or the others
                                                                scale="batch": over all answers

    ``scale="none"`` leaves out the division, and so does an answer whose ``std_i`` is 0, or has too few answers to be
    defined. So an answer that is alone in its group, or in a group of equal rewards, has advantage 0 with any baseline
    but "none".

    ::

        GRPO                   the defaults; what differs is eps
        Dr. GRPO               scale="none"
        RLOO                   baseline="leave_one_out", scale="none"
        REINFORCE++-baseline   scale="none", then fastgae.normalize over the tokens of the batch

    Sums have no rounding, and everything else is computed in float64 and rounded once at the end. So the order of the
    answers changes no bit, and the other groups of a call have no effect, except with ``scale="batch"``.

    Parameters
    ----------
    rewards : array of any shape, one reward per answer
        Libraries and dtypes as in ``gae``. The arrays are on the CPU.
    groups : array like ``rewards``, or a list; integers, strings, or any objects that can be hashed
        Answers with equal labels are one group, as Python compares them: 1 and "1" are two labels. The labels may be in
        any order and of any size, and a list may hold tuples, such as (prompt, state).
    trajectories : like ``groups``, optional
        Samples of a group with equal labels are one trajectory, such as the turns of a dialogue that became one sample
        each. Each trajectory then counts once. All its samples must have its whole reward, and get its advantage.
    baseline : "mean", "leave_one_out" or "none"; None is "none"
        What is subtracted from the rewards.
    scale : "std", "batch" or "none"; None is "none"
        What the advantages are divided by.
    ddof : int >= 0
        1 gives the sample's standard deviation, as ``torch.std`` does, and 0 the population's.
    eps : finite float >= 0
        Added to the standard deviation. verl and NeMo-RL have 1e-6, TRL 1e-4, and OpenRLHF 1e-9.
    mask : array like ``rewards``, optional; bool, or numbers that are 0 or 1
        False: the answer does not exist. It has no effect on the others, and its result is 0.

    Returns
    -------
    array like ``rewards`` in the working dtype; in units of ``rewards``, or without units for ``scale="std"``.

    Raises
    ------
    ValueError, TypeError
        As ``gae``; TypeError for labels that are floats, or cannot be hashed; ValueError if the rewards of a trajectory
        differ.

    Source
    ------
    Shao et al., "DeepSeekMath", 2024, https://arxiv.org/abs/2402.03300 (GRPO); Liu et al., "Understanding R1-Zero-Like
    Training", 2025, https://arxiv.org/abs/2503.20783 (Dr. GRPO); Ahmadian et al., "Back to Basics", 2024,
    https://arxiv.org/abs/2402.14740 (RLOO); Hu et al., "REINFORCE++", 2025, https://arxiv.org/abs/2501.03262.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, groups = np.array([1.0, 0.0, 0.0, 1.0]), ["a", "a", "b", "b"]
    >>> fastgae.group_advantages(rewards, groups, baseline="leave_one_out", scale="none")
    array([ 1., -1., -1.,  1.])
    """
    subtracted = _one_of("baseline", baseline, get_args(Baseline))
    divided = _one_of("scale", scale, get_args(Scale))
    kept_out, added = as_ddof(ddof), as_eps(eps)
    (numbers,) = of_one_dtype(rewards=rewards)
    frame = frame_of("rewards", numbers, 0, has_time=False)
    given_labels = {"groups": groups} if trajectories is None else {"groups": groups, "trajectories": trajectories}
    labels = {name: as_labels(name, given, frame.shape) for name, given in given_labels.items()}
    exists = frame.flags_or_none("mask", mask)
    kept = slice(None) if exists is None else exists.ravel()
    flat = numbers.ravel()[kept].astype(np.float64)
    group, *trajectory = (numbered(name, each.ravel())[kept] for name, each in labels.items())
    if trajectory:
        first, sample = _once(flat, group, trajectory[0])
        flat, group = flat[first], group[first]
    result: Any = np.zeros_like(numbers, order="C")
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        advantages = _relative(flat, group, subtracted, divided, kept_out, added)
        result.reshape(-1)[kept] = advantages[sample] if trajectory else advantages
    return result


def _one_of(name: str, given: object, words: tuple[str, ...]) -> str:
    word = "none" if given is None else given
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {shown(given)}")
    return word


def _once(rewards: Array, group: Array, trajectory: Array) -> tuple[Array, Array]:
    """Return the index of a sample of each trajectory, and the place of each sample's trajectory among these."""
    pairs = group * (trajectory.max(initial=0) + 1) + trajectory
    _, first, sample = np.unique(pairs, return_index=True, return_inverse=True)
    whole = rewards[first][sample]
    wrong = np.flatnonzero((whole != rewards) & ~(np.isnan(whole) & np.isnan(rewards)))
    if wrong.size:
        raise ValueError(
            f"rewards has {whole[wrong[0]]} and {rewards[wrong[0]]} for samples of one trajectory: pass the reward of "
            "the whole trajectory, such as the sum over its turns, for each of its samples"
        )
    return first, sample


def _relative(rewards: Array, group: Array, baseline: str, scale: str, ddof: int, eps: float) -> Array:
    """Return the advantages of rewards in float64; ``group`` is the index of each one's group."""
    centered, counts = _centered(rewards, group)
    leaves_out = baseline == "leave_one_out"
    growth = counts / np.maximum(counts - 1, 1)  # a difference from the mean grows so if its reward leaves the mean
    advantages = rewards if baseline == "none" else centered * growth[group] if leaves_out else centered
    if scale == "none":
        return advantages
    if scale == "batch":
        leaves_out, group = False, np.zeros_like(group)
        centered, counts = _centered(rewards, group)
    if leaves_out:
        total, counts = _squares_of_others(rewards, centered, group, counts, growth), (counts - 1)[group]
    else:
        total = counts * means_by_group(centered**2, group, counts)
    std = np.sqrt(np.where(counts > ddof, total / np.maximum(counts - ddof, 1), 0.0))
    divisor = np.where(std == 0, 1.0, std + eps)
    return advantages / (divisor if leaves_out else divisor[group])


def _centered(rewards: Array, group: Array) -> tuple[Array, Array]:
    """Return the differences of rewards from the mean of their group, and the number of rewards of each group."""
    counts = np.bincount(group)
    centered = rewards - means_by_group(rewards, group, counts)[group]
    centered -= means_by_group(centered, group, counts)[group]  # by what the first mean was rounded
    return centered, counts


def _squares_of_others(rewards: Array, centered: Array, group: Array, counts: Array, growth: Array) -> Array:
    """Return for each reward the sum of the squared differences of the other rewards from their own mean."""
    squares = centered**2
    total, own = (counts * means_by_group(squares, group, counts))[group], squares * growth[group]
    # Without an outlier little is left of the total, and its digits are lost, so it is computed anew without it.
    outlying = own > 0.75 * total
    others, rest = rewards[~outlying], group[~outlying]
    remaining = np.bincount(rest, minlength=len(counts))
    differences = others - means_by_group(others, rest, remaining)[rest]
    without_outlier = remaining * means_by_group(differences**2, rest, remaining)
    return np.where(outlying, without_outlier[group], total - own)
