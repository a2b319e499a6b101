"""The caller's arguments -> Arguments: everything that can be wrong with a call is found here, or in arguments."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastgae._canonical.arguments import (
    LIKE_REWARDS,
    NEXT_STEP,
    WITHOUT_TIME,
    array_to_fill,
    as_array,
    as_coefficient,
    as_flags,
    as_number,
    as_numbers,
    as_prev_done,
    as_switch,
    as_time_axis,
    as_unit_interval,
    autoreset_mode,
    check_broadcast,
    check_shape,
    checked_out,
    of_one_dtype,
    shown,
)
from fastgae._canonical.contract import Arguments, Array, Clips, Options, Output

NORMALIZE = ("global", "per_env")


def checked_arguments(
    rewards: ArrayLike,
    values: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    last_values: ArrayLike | None,
    next_values: ArrayLike | None,
    final_values: ArrayLike | None,
    gamma: Any,
    gae_lambda: Any,
    time_axis: int,
    out: Any,
    *,
    autoreset: object = None,
    last_advantages: ArrayLike | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    returns_lambda: Any = None,
    tail_normalized: bool = False,
    ratios: ArrayLike | None = None,
    clips: Clips | None = None,
    lambda_name: str = "gae_lambda",
    returns_alone: bool = False,
) -> Arguments:
    """Of fastgae.gae, and of everything that is GAE with other names or weights.

    With ``returns_alone``, ``out`` is the array for them.
    """
    reward, value, last, following, final, later, ratio = of_one_dtype(
        rewards=rewards,
        values=values,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        last_advantages=last_advantages,
        ratios=ratios,
    )
    if clips is not None and ratio is None:
        raise TypeError("ratios must be an array, got None")
    shape, dtype = reward.shape, reward.dtype
    axis = as_time_axis(time_axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    one_longer = (*before, shape[axis] + 1, *after)
    if value.shape != shape and value.shape != one_longer:
        raise ValueError(
            f"values has shape {value.shape}; expected rewards' shape {shape}, or {one_longer} with a last V"
        )
    _check_bootstrap(value.shape == one_longer, last is not None, following is not None, shape)
    check_shape("last_values", last, before + after, WITHOUT_TIME)
    check_shape("next_values", following, shape, LIKE_REWARDS)
    check_shape("last_advantages", later, before + after, WITHOUT_TIME)
    check_shape("ratios", ratio, shape, LIKE_REWARDS)
    ended = as_flags("terminated", terminated, shape)
    cut = None if truncated is None else as_flags("truncated", truncated, shape)
    exists = None if mask is None else as_flags("mask", mask, shape)
    mode = autoreset_mode(autoreset)
    started = as_prev_done(prev_done, mode, before + after)
    _check_final_values(final, cut, following is not None, mode)
    discount, trace = as_unit_interval("gamma", gamma, shape), as_unit_interval(lambda_name, gae_lambda, shape)
    target = None if returns_lambda is None else as_unit_interval("returns_lambda", returns_lambda, shape)
    tail = as_switch("tail_normalized", tail_normalized)
    _check_combination(target is not None, tail, later is not None)
    output: Output | None
    if returns_alone:
        output = None, array_to_fill(out, reward)
    else:
        output = None if out is None else checked_out(out, shape, dtype)
    plain = Arguments(reward, value, ended, cut, last, following, final, discount, trace, axis, output)
    given = (later, ratio, exists, target, *(each for each in (discount, trace) if isinstance(each, np.ndarray)))
    if not tail and mode != NEXT_STEP and all(each is None for each in given):
        return plain

    passes = exists is not None and following is None
    if mode == NEXT_STEP:
        done = ended if cut is None else ended | cut
        if exists is not None and passes:
            plain, passes = plain._replace(next_values=_next_existing_values(value, last, exists, axis)), False
        exists = valid_steps_of(done, started, axis, exists)
    options = Options(
        as_coefficient(discount, dtype, shape),
        as_coefficient(discount * trace, dtype, shape),
        None if target is None else as_coefficient(discount * target, dtype, shape),
        as_coefficient(trace, dtype, shape) if tail else None,
        exists,
        passes,
        later,
        ratio,
        clips,
    )
    return plain._replace(options=options)


def checked_returns(
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    last_values: ArrayLike | None,
    final_values: ArrayLike | None,
    mask: ArrayLike | None,
    gamma: Any,
    time_axis: int,
    out: Array | None,
) -> Arguments:
    """Discounted returns: a recursion of rewards alone, which the value after the last step starts."""
    reward, last, final = of_one_dtype(rewards=rewards, last_values=last_values, final_values=final_values)
    shape, axis = reward.shape, as_time_axis(time_axis, reward.ndim)
    ended = as_flags("terminated", terminated, shape)
    cut = None if truncated is None else as_flags("truncated", truncated, shape)
    exists = None if mask is None else as_flags("mask", mask, shape)
    _check_final_values(final, cut, False, None)
    check_shape("last_values", last, shape[:axis] + shape[axis + 1 :], WITHOUT_TIME)
    if last is None and not _end_with(ended if cut is None else ended | cut, exists, axis):
        raise ValueError("the last step does not end every episode: pass last_values, V of the state after it")
    discount = as_coefficient(as_unit_interval("gamma", gamma, shape), reward.dtype, shape)
    output = array_to_fill(out, reward), None
    options = Options(discount, discount, mask=exists, last_advantages=last)
    return Arguments(reward, None, ended, cut, None, None, final, None, None, axis, output, options)


def checked_scan(
    x: ArrayLike, decay: ArrayLike, initial: ArrayLike | None, time_axis: int, out: Array | None
) -> Arguments:
    """y = x + decay y_next: no gates, and any decay."""
    terms, factors, first = of_one_dtype(x=x, decay=decay, initial=initial)
    shape, axis = terms.shape, as_time_axis(time_axis, terms.ndim, "x")
    check_shape("initial", first, shape[:axis] + shape[axis + 1 :], "x's shape without time")
    check_broadcast("decay", factors, shape)
    output = array_to_fill(out, terms, "x's shape"), None
    options = Options(1.0, np.broadcast_to(factors, shape), last_advantages=first)
    return Arguments(terms, None, None, None, None, None, None, None, None, axis, output, options)


def checked_sequences(
    rewards: ArrayLike,
    values: ArrayLike,
    cu_seqlens: ArrayLike,
    terminated: ArrayLike | None,
    last_values: ArrayLike | None,
    mask: ArrayLike | None,
) -> tuple[Array, Array, Array | None, Array | None]:
    """Check what is not as in a rollout of one env.

    Return the length of each sequence, the last step that exists of each that has one, the flags, and the value after
    those last steps.
    """
    reward, starts = as_numbers("rewards", rewards), as_array("cu_seqlens", cu_seqlens)
    if reward.ndim != 1:
        raise ValueError(f"rewards has shape {reward.shape}; expected one dimension, all sequences end to end")
    if getattr(values, "shape", None) != reward.shape:
        check_shape("values", as_numbers("values", values), reward.shape, LIKE_REWARDS)
    if starts.dtype.kind not in "iu":
        raise TypeError(f"cu_seqlens has dtype {starts.dtype}; expected integers")
    if starts.ndim != 1 or not len(starts):
        raise ValueError(f"cu_seqlens has shape {starts.shape}; expected (sequences + 1,)")
    total, starts = len(reward), starts.astype(np.int64, copy=False)  # what is too large becomes negative
    firsts, nexts = starts[:-1], starts[1:]
    some = nexts > firsts  # compared, because differences can wrap
    whole = bool(some.all())
    if starts[0] != 0 or starts[-1] != total or not (whole or (nexts >= firsts).all()):
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {total}, got {shown(cu_seqlens)}")
    lengths, ends = nexts - firsts, nexts - 1
    ended = None if terminated is None else as_flags("terminated", terminated, reward.shape)
    last = None if last_values is None else as_numbers("last_values", last_values)
    check_shape("last_values", last, (len(lengths),), "one per sequence")
    if mask is not None:  # the end of a sequence is a flag of a step, and those of steps that do not exist do not count
        before = np.concatenate([[-1], np.flatnonzero(as_flags("mask", mask, reward.shape))])
        ends = before[np.searchsorted(before, ends, "right") - 1]
        some = ends >= firsts
    elif whole:
        return lengths, ends, ended, last
    return lengths, ends[some], ended, None if last is None else last[some]


def checked_valid_steps(
    terminated: ArrayLike, truncated: ArrayLike | None, prev_done: ArrayLike | None, time_axis: int
) -> Array:
    """The steps that are no reset row."""
    flags = as_array("terminated", terminated)
    shape = flags.shape
    done = as_flags("terminated", flags, shape)
    axis = as_time_axis(time_axis, len(shape), "terminated")
    if truncated is not None:
        done = done | as_flags("truncated", truncated, shape, "terminated's shape")
    without_time = shape[:axis] + shape[axis + 1 :]
    started = None if prev_done is None else as_flags("prev_done", prev_done, without_time, "the shape without time")
    return valid_steps_of(done, started, axis)


def checked_advantages(
    advantages: ArrayLike, mask: ArrayLike | None, by: object, eps: Any, time_axis: int, out: Array | None
) -> tuple[Array, Array, Array | None, float, int]:
    """Return the advantages, the array to fill, the steps that exist, eps and the axis of time."""
    (numbers,) = of_one_dtype(advantages=advantages)
    axis = as_time_axis(time_axis, numbers.ndim, "advantages")
    exists = None if mask is None else as_flags("mask", mask, numbers.shape, "the shape of advantages")
    if not isinstance(by, str) or by not in NORMALIZE:
        raise ValueError(f"by must be {' or '.join(map(repr, NORMALIZE))}, got {shown(by)}")
    expected = "a finite number >= 0"
    added = as_number("eps", eps, expected)
    if not 0.0 <= added < math.inf:
        raise ValueError(f"eps must be {expected}, got {added!r}")
    result = array_to_fill(out, numbers, "the shape of advantages")
    if exists is not None and np.may_share_memory(exists, result):
        exists = exists.copy()
    return numbers, result, exists, added, axis


def _end_with(done: Array, exists: Array | None, axis: int) -> bool:
    """Whether the last step that exists of every env, if there is one, ends an episode."""
    if not done.size:
        return True
    if exists is None:
        return bool(done.take(-1, axis).all())
    last = done.shape[axis] - 1 - np.flip(exists, axis).argmax(axis, keepdims=True)
    return bool((np.take_along_axis(done, last, axis) | ~exists.any(axis, keepdims=True)).all())


def check_normalize(normalize: object, out: Output | None) -> None:
    if normalize is None:
        return
    if not isinstance(normalize, str) or normalize not in NORMALIZE:
        raise ValueError(f"normalize must be {' or '.join(map(repr, NORMALIZE))}, or None, got {shown(normalize)}")
    if out is not None and out[0] is None:
        raise ValueError("normalize is about the advantages, and out has no array for them")


def _check_bootstrap(longer: bool, last: bool, following: bool, shape: tuple[int, ...]) -> None:
    if longer + last + following == 1:
        return
    names = ["values with one extra row"] * longer + ["last_values"] * last + ["next_values"] * following
    if names:
        raise ValueError(f"the value after the last step is given more than once: {' and '.join(names)}; keep one")
    raise ValueError(
        f"the value after the last step is missing: pass last_values, next_values, or values with one row more along "
        f"time than rewards' shape {shape}"
    )


def _check_final_values(final: Array | None, truncated: Array | None, following: bool, mode: str | None) -> None:
    if truncated is None:
        if final is None:
            return
        raise ValueError(
            "final_values is given without truncated: it holds V of the final observation of truncated steps"
        )
    if final is None:
        if following or mode == NEXT_STEP:
            return
        raise ValueError(
            "truncated is given, but values[t + 1] may belong to another episode, so the value after a truncated step "
            "is unknown: pass final_values (V of the final observations), or next_values (V of every next observation "
            'before any reset), or say autoreset="next_step" where values[t + 1] is V of the final observation'
        )
    if mode == NEXT_STEP:
        raise ValueError('autoreset="next_step" has V of the final observations in values: leave final_values out')
    if following:
        raise ValueError("final_values and next_values both hold the value after a truncated step: keep one")
    if final.shape != truncated.shape and final.shape != (count := np.count_nonzero(truncated),):
        raise ValueError(
            f"final_values has shape {final.shape}; expected ({count},), one per True of truncated, or rewards' shape "
            f"{truncated.shape}"
        )


def _check_combination(returns_lambda: bool, tail_normalized: bool, last_advantages: bool) -> None:
    for one, other, why in (
        (returns_lambda, last_advantages, "last_advantages are of one lambda, and returns_lambda is another"),
        (returns_lambda, tail_normalized, "returns_lambda has no tail-normalized form"),
        (
            tail_normalized,
            last_advantages,
            "tail_normalized needs the steps that last_advantages stand for",
        ),
    ):
        if one and other:
            raise ValueError(f"{why}: call once for each")


def valid_steps_of(done: Array, prev_done: Array | None, axis: int, mask: Array | None = None) -> Array:
    """The steps that are no reset row, whose predecessor did not end an episode; masked steps are nobody's."""
    valid = np.empty_like(done)
    rows, ends = np.moveaxis(valid, axis, 0), np.moveaxis(done, axis, 0)
    before = np.zeros(ends.shape[1:], bool) if prev_done is None else prev_done
    if mask is None:
        rows[:1], rows[1:] = ~before, ~ends[:-1]
        return valid
    for t, exists in enumerate(np.moveaxis(mask, axis, 0)):
        rows[t] = exists & ~before
        before = np.where(exists, ends[t], before)
    return valid


def _next_existing_values(values: Array, last_values: Array | None, mask: Array, axis: int) -> Array:
    """V' of every step, where that is V of the next step that exists."""
    following = np.empty(mask.shape, values.dtype)
    steps, rows = np.moveaxis(values, axis, 0), np.moveaxis(following, axis, 0)
    exists = np.moveaxis(mask, axis, 0)
    upcoming = steps[-1] if last_values is None else last_values
    for t in reversed(range(len(rows))):
        rows[t] = upcoming
        upcoming = np.where(exists[t], steps[t], upcoming)
    return following
