"""Advantages of answers relative to the other answers of their group, without values."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from fastgae._call import Array
from fastgae._canonical.arguments import as_labels, as_word, numbered, of_one_dtype, one_for_each
from fastgae._canonical.frame import frame_of
from fastgae._engine.declared import public
from fastgae._equation.relative import Groups, on_device, relative
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import as_numbers, takes_tensors
from fastgae._support.misnamed import RELATIVE_ELSEWHERE
from fastgae._typing import ArrayLike, ArrayT, Baseline, Numbers, Scale
from fastgae.estimators.normalize import as_ddof, as_eps


@takes_tensors(in_torch=False)
@public
def group_advantages(
    rewards: ArrayT | Numbers,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    baseline: Baseline | ArrayLike | None = "mean",
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
                 its own number                   baseline is an array
        std_i  = sqrt(sum of (r - mean)^2 / (count - ddof))     scale="std": over the group, or the others
                                                                scale="batch": over all answers

    ``scale="none"`` leaves out the division, and so does an answer whose ``std_i`` is 0, or has too few answers to be
    defined. So an answer that is alone in its group, or in a group of equal rewards, has advantage 0 with any baseline
    but "none" and an array.

    ::

        GRPO                   the defaults; what differs is eps
        Dr. GRPO               scale="none"
        RLOO                   baseline="leave_one_out", scale="none"
        REINFORCE++-baseline   scale="none", then fastgae.normalize over the tokens of the batch
        ReMax                  baseline=the reward of the greedy answer, scale="none"

    Sums have no rounding, and everything else is computed in float64 and rounded once at the end. So the order of the
    answers changes no bit, and the other groups of a call have no effect, except with ``scale="batch"``.

    Parameters
    ----------
    rewards : array of any shape, one reward per answer
        Libraries and dtypes as in ``gae``. Results have no gradients. On a GPU and inside ``jax.jit``, labels are
        integers, of any size and number. Where no number is looked at (docs/tensors.md), the first sample of a
        trajectory counts for it.
    groups : array like ``rewards``, or a list; integers, strings, or other objects that can be hashed
        Answers with equal labels are one group, as Python compares them: 1 and "1" are two labels. The labels may be in
        any order and of any size, and a list may hold tuples, such as (prompt, state).
    trajectories : like ``groups``, optional
        Samples of a group with equal labels are one trajectory, such as the turns of a dialogue that became one sample
        each. Each trajectory then counts once. All its samples must have its whole reward, and get its advantage.
    baseline : "mean", "leave_one_out" or "none", or an array like ``rewards``, or one number; None is "none"
        What is subtracted from the rewards. An array is read as float64 and has no effect on the dtype of the result.
    scale : "std", "batch" or "none"; None is "none"
        What the advantages are divided by.
    ddof : int >= 0
        1 gives the sample's standard deviation, as ``torch.std`` and so the trainers of GRPO do, and 0 the
        population's. In groups of few answers they differ, and so do this default and that of ``normalize``.
    eps : finite float >= 0
        Added to the standard deviation. verl and NeMo-RL have 1e-6, TRL 1e-4, and OpenRLHF 1e-9; ``normalize`` has
        1e-8, as trainers of PPO do.
    mask : array like ``rewards``, optional; bool, or numbers that are 0 or 1
        False: the answer does not exist. It has no effect on the others, and its result is 0.

    Returns
    -------
    array like ``rewards`` in the working dtype; in units of ``rewards``, or without units if they are divided.

    Raises
    ------
    ValueError, TypeError
        As ``gae``; TypeError for labels that are floats, or cannot be hashed; ValueError if the rewards of a trajectory
        differ.

    Notes
    -----
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
    divided = _one_of("scale", scale, get_args(Scale))
    kept_out, added = as_ddof(ddof), as_eps(eps)
    (numbers,) = of_one_dtype(rewards=rewards)
    frame = frame_of("rewards", numbers, 0, names_time_axis=False)
    subtracted = _as_baseline(baseline, frame.shape)
    given_labels = {"groups": groups} if trajectories is None else {"groups": groups, "trajectories": trajectories}
    labels = {name: as_labels(name, given, frame.shape) for name, given in given_labels.items()}
    exists = frame.flags_or_none("mask", mask)
    if isinstance(numbers, OnDevice):
        there: Any = on_device(numbers, labels, exists, subtracted, divided, kept_out, added)
        return there
    kept = slice(None) if exists is None else exists.ravel()
    flat = numbers.ravel()[kept].astype(np.float64)
    group, *trajectory = (numbered(name, each.ravel())[kept] for name, each in labels.items())
    counted = _firsts(flat, group, trajectory[0]) if trajectory else True
    if not isinstance(subtracted, str):
        subtracted = np.broadcast_to(subtracted, frame.shape).ravel()[kept]
    result: Any = np.zeros_like(numbers, order="C")
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        result.reshape(-1)[kept] = relative(flat, Groups(), group, counted, subtracted, divided, kept_out, added)
    return result


def _as_baseline(given: Any, shape: tuple[int, ...]) -> Any:
    """Return a word, or one number or one number per answer in float64."""
    if given is None or isinstance(given, str | bool):
        return _one_of("baseline", given, get_args(Baseline))
    numbers = as_numbers("baseline", given).astype(np.float64)
    return one_for_each("baseline", numbers, shape, "rewards' shape", on_device=True)


def _one_of(name: str, given: object, words: tuple[str, ...]) -> str:
    elsewhere = {word: RELATIVE_ELSEWHERE[word] for word in map(repr, words)}
    return as_word(name, "none" if given is None else given, words, elsewhere)


def _firsts(rewards: Array, group: Array, trajectory: Array) -> Array:
    """Return whether a sample is the first of its trajectory, after a check that all its samples have one reward."""
    pairs = group.astype(np.int64) * (trajectory.max(initial=0) + 1) + trajectory
    _, first, sample = np.unique(pairs, return_index=True, return_inverse=True)
    whole = rewards[first][sample]
    wrong = np.flatnonzero((whole != rewards) & ~(np.isnan(whole) & np.isnan(rewards)))
    if wrong.size:
        raise ValueError(
            f"rewards has {whole[wrong[0]]} and {rewards[wrong[0]]} for samples of one trajectory: pass the reward of "
            "the whole trajectory, such as the sum over its turns, for each of its samples"
        )
    return first[sample] == np.arange(len(rewards))
