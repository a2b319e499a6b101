"""The caller's arguments -> Arguments: everything that can be wrong with a call is found here."""

import enum
import functools
import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastgae._canonical.contract import Arguments, Array, Clips, Options, Output
from fastgae._kinds import kind_of, module_of

WORKING_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
REQUIRED = ("rewards", "values", "advantages", "x", "decay")
NEXT_STEP = "next_step"
AUTORESET = (NEXT_STEP, "same_step", "disabled")
NORMALIZE = ("global", "per_env")
LIKE_REWARDS, WITHOUT_TIME = "rewards' shape", "rewards' shape without time"


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
    out: Output | None,
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
) -> Arguments:
    """Of fastgae.gae, and of everything that is GAE with other names or weights."""
    reward, value, last, following, final, later, ratio = _of_one_dtype(
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
    axis = _time_axis(time_axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    one_longer = (*before, shape[axis] + 1, *after)
    if value.shape != shape and value.shape != one_longer:
        raise ValueError(
            f"values has shape {value.shape}; expected rewards' shape {shape}, or {one_longer} with a last V"
        )
    _check_bootstrap(value.shape == one_longer, last is not None, following is not None, shape)
    _check_shape("last_values", last, before + after, WITHOUT_TIME)
    _check_shape("next_values", following, shape, LIKE_REWARDS)
    _check_shape("last_advantages", later, before + after, WITHOUT_TIME)
    _check_shape("ratios", ratio, shape, LIKE_REWARDS)
    ended = _flags("terminated", terminated, shape)
    cut = None if truncated is None else _flags("truncated", truncated, shape)
    exists = None if mask is None else _flags("mask", mask, shape)
    mode = autoreset_mode(autoreset)
    started = _prev_done(prev_done, mode, before + after)
    _check_final_values(final, cut, following is not None, mode)
    discount, trace = _unit_interval("gamma", gamma, shape), _unit_interval(lambda_name, gae_lambda, shape)
    target = None if returns_lambda is None else _unit_interval("returns_lambda", returns_lambda, shape)
    _check_combination(target is not None, tail_normalized, later is not None)
    output = None if out is None else _checked_out(out, shape, dtype)
    plain = Arguments(reward, value, ended, cut, last, following, final, discount, trace, axis, output)
    given = (later, ratio, exists, target, *(each for each in (discount, trace) if isinstance(each, np.ndarray)))
    if not tail_normalized and mode != NEXT_STEP and all(each is None for each in given):
        return plain

    passes = exists is not None and following is None
    if mode == NEXT_STEP:
        done = ended if cut is None else ended | cut
        if exists is not None and passes:
            plain, passes = plain._replace(next_values=_next_existing_values(value, last, exists, axis)), False
        exists = valid_steps_of(done, started, axis, exists)
    options = Options(
        _coefficient(discount, dtype, shape),
        _coefficient(discount * trace, dtype, shape),
        None if target is None else _coefficient(discount * target, dtype, shape),
        _coefficient(trace, dtype, shape) if tail_normalized else None,
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
    reward, last, final = _of_one_dtype(rewards=rewards, last_values=last_values, final_values=final_values)
    shape, axis = reward.shape, _time_axis(time_axis, reward.ndim)
    ended = _flags("terminated", terminated, shape)
    cut = None if truncated is None else _flags("truncated", truncated, shape)
    exists = None if mask is None else _flags("mask", mask, shape)
    _check_final_values(final, cut, False, None)
    _check_shape("last_values", last, shape[:axis] + shape[axis + 1 :], WITHOUT_TIME)
    if last is None and not _end_with(ended if cut is None else ended | cut, exists, axis):
        raise ValueError("the last step does not end every episode: pass last_values, V of the state after it")
    discount = _coefficient(_unit_interval("gamma", gamma, shape), reward.dtype, shape)
    output = (np.empty_like(reward), None) if out is None else _checked_out((out, None), shape, reward.dtype)
    options = Options(discount, discount, mask=exists, last_advantages=last)
    return Arguments(reward, None, ended, cut, None, None, final, None, None, axis, output, options)


def checked_scan(
    x: ArrayLike, decay: ArrayLike, initial: ArrayLike | None, time_axis: int, out: Array | None
) -> Arguments:
    """y = x + decay y_next: no gates, and any decay."""
    terms, factors, first = _of_one_dtype(x=x, decay=decay, initial=initial)
    shape, axis = terms.shape, _time_axis(time_axis, terms.ndim, "x")
    _check_shape("initial", first, shape[:axis] + shape[axis + 1 :], "x's shape without time")
    _check_broadcast("decay", factors, shape)
    output = (np.empty_like(terms), None) if out is None else _checked_out((out, None), shape, terms.dtype)
    options = Options(1.0, np.broadcast_to(factors, shape), last_advantages=first)
    return Arguments(terms, None, None, None, None, None, None, None, None, axis, output, options)


def checked_sequences(
    rewards: ArrayLike, cu_seqlens: ArrayLike, last_values: ArrayLike | None, mask: ArrayLike | None
) -> tuple[Array, Array, Array | None]:
    """The length of each sequence; the last step that exists of each that has one, and the value after it, if given."""
    reward, starts = _numbers("rewards", rewards), _array("cu_seqlens", cu_seqlens)
    if reward.ndim != 1:
        raise ValueError(f"rewards has shape {reward.shape}; expected one dimension, all sequences end to end")
    if starts.dtype.kind not in "iu":
        raise TypeError(f"cu_seqlens has dtype {starts.dtype}; expected integers")
    if starts.ndim != 1 or not len(starts):
        raise ValueError(f"cu_seqlens has shape {starts.shape}; expected (sequences + 1,)")
    total, starts = len(reward), starts.astype(np.int64, copy=False)
    lengths = starts[1:] - starts[:-1]
    some = lengths > 0
    whole = bool(some.all())
    if starts[0] != 0 or starts[-1] != total or not (whole or (lengths >= 0).all()):
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {total}, got {starts}")
    last = None if last_values is None else _numbers("last_values", last_values)
    _check_shape("last_values", last, (len(lengths),), "one per sequence")
    ends = starts[1:] - 1
    if mask is not None:  # the end of a sequence is a flag of a step, and those of steps that do not exist do not count
        before = np.concatenate([[-1], np.flatnonzero(_flags("mask", mask, reward.shape))])
        ends = before[np.searchsorted(before, ends, "right") - 1]
        some = ends >= starts[:-1]
    elif whole:
        return lengths, ends, last
    return lengths, ends[some], None if last is None else last[some]


def checked_valid_steps(
    terminated: ArrayLike, truncated: ArrayLike | None, prev_done: ArrayLike | None, time_axis: int
) -> Array:
    """The steps that are no reset row."""
    shape = _array("terminated", terminated).shape
    axis = _time_axis(time_axis, len(shape), "terminated")
    done = _flags("terminated", terminated, shape)
    if truncated is not None:
        done = done | _flags("truncated", truncated, shape, "terminated's shape")
    without_time = shape[:axis] + shape[axis + 1 :]
    started = None if prev_done is None else _flags("prev_done", prev_done, without_time, "the shape without time")
    return valid_steps_of(done, started, axis)


def checked_advantages(
    advantages: ArrayLike, mask: ArrayLike | None, by: object, eps: float, time_axis: int, out: Array | None
) -> tuple[Array, Array | None, int]:
    """An array of its own that holds the advantages, the steps that exist, and the axis of time."""
    (numbers,) = _of_one_dtype(advantages=advantages)
    axis = _time_axis(time_axis, numbers.ndim, "advantages")
    exists = None if mask is None else _flags("mask", mask, numbers.shape, "the shape of advantages")
    if not isinstance(by, str) or by not in NORMALIZE:
        raise ValueError(f"by must be {' or '.join(map(repr, NORMALIZE))}, got {by!r}")
    if not isinstance(eps, float | int) or not eps >= 0.0:
        raise ValueError(f"eps must be a number >= 0, got {eps!r}")
    if out is None:
        result = np.empty_like(numbers, subok=False)
    else:
        _checked_out((out, None), numbers.shape, numbers.dtype)
        result = out
    if result is not numbers:
        result[...] = numbers
    if exists is not None:
        result[~exists] = 0
    return result, exists, axis


def _end_with(done: Array, exists: Array | None, axis: int) -> bool:
    """Whether the last step that exists of every env, if there is one, ends an episode."""
    if not done.size:
        return True
    if exists is None:
        return bool(done.take(-1, axis).all())
    last = done.shape[axis] - 1 - np.flip(exists, axis).argmax(axis, keepdims=True)
    return bool((np.take_along_axis(done, last, axis) | ~exists.any(axis, keepdims=True)).all())


def autoreset_mode(given: object) -> str | None:
    """The name of a mode; Gymnasium's AutoresetMode members are named alike."""
    if given is None:
        return None
    name = given.name if isinstance(given, enum.Enum) else given
    mode = name.lower() if isinstance(name, str) else None
    if mode not in AUTORESET:
        raise ValueError(
            f"autoreset must be one of {', '.join(map(repr, AUTORESET))}, the member of Gymnasium's AutoresetMode, or "
            f"None, got {given!r}"
        )
    return mode


def working_dtype(**given: object) -> np.dtype[Any]:
    """The dtype in which a call with these numbers is computed."""
    dtype: np.dtype[Any] = _of_one_dtype(**given)[0].dtype
    return dtype


def check_normalize(normalize: object, out: Output | None) -> None:
    if normalize is None:
        return
    if not isinstance(normalize, str) or normalize not in NORMALIZE:
        raise ValueError(f"normalize must be {' or '.join(map(repr, NORMALIZE))}, or None, got {normalize!r}")
    if out is not None and out[0] is None:
        raise ValueError("normalize is about the advantages, and out has no array for them")


# --- one argument -----------------------------------------------------------------------------------------------------


def _of_one_dtype(**given: object) -> list[Any]:
    """The numbers of a call in the working dtype; of those that may be missing, None."""
    arrays = [None if raw is None and name not in REQUIRED else _numbers(name, raw) for name, raw in given.items()]
    strong = [
        array.dtype
        for array, raw in zip(arrays, given.values(), strict=True)
        if array is not None and (raw is array or not _is_weak(raw))
    ]
    dtype = _working_dtype(*strong)
    return [None if array is None else _cast(array, dtype) for array in arrays]


def _array(name: str, given: object) -> Array:
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and its mask would be lost: pass a plain array")
    if kind := kind_of(given):
        array: Array = module_of(kind).to_numpy(name, given)
        return array
    try:
        return np.asarray(given)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name} cannot be read as an array: {error}") from error


def _numbers(name: str, given: object) -> Array:
    array = _array(name, given)
    if array.dtype in WORKING_DTYPES or array.dtype.kind in "biu" or array.dtype.newbyteorder("=") in WORKING_DTYPES:
        return array
    raise TypeError(f"{name} has dtype {array.dtype}; expected float32, float64 or integers: convert it first")


def _is_weak(given: object) -> bool:
    """A Python number promotes nothing, as in NumPy, and neither does an empty list of final values."""
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)


@functools.lru_cache  # NumPy takes a microsecond to promote
def _working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    single, double = WORKING_DTYPES
    return single if dtypes and np.result_type(*dtypes) == single else double


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    return array if array.dtype == dtype else array.astype(dtype)


def _time_axis(time_axis: int, ndim: int, name: str = "rewards") -> int:
    if ndim == 0:
        raise ValueError(f"{name} is a scalar; expected an array with a time axis")
    try:
        axis = operator.index(time_axis)
    except TypeError:
        raise TypeError(f"time_axis must be an integer, got {time_axis!r}") from None
    if not -ndim <= axis < ndim:
        raise ValueError(f"time_axis={axis} is out of range for {name} with {ndim} dimension{'s'[: ndim > 1]}")
    return axis % ndim


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


def _check_shape(name: str, array: Array | None, shape: tuple[int, ...], what: str) -> None:
    if array is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {what}, {shape}")


def _flags(name: str, given: object, shape: tuple[int, ...], what: str = LIKE_REWARDS) -> Array:
    array = _array(name, given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold bool, or numbers that are 0 or 1, got {array.dtype}")
    _check_shape(name, array, shape, what)
    if array.dtype.kind == "b":
        return array
    ones: Array = np.equal(array, 1)
    # NumPy counts integers fast, floats one by one.
    if np.count_nonzero(ones) != np.count_nonzero(array.astype(bool) if array.dtype.kind == "f" else array):
        where = tuple(int(i) for i in np.argwhere(ones != (array != 0))[0])
        raise ValueError(f"{name} must hold 0 or 1, got {array[where]} at index {where}")
    return ones


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


def _unit_interval(name: str, given: Any, shape: tuple[int, ...]) -> Any:
    """A float, or a float64 array that broadcasts to rewards."""
    if type(given) is not float:
        if getattr(given, "ndim", 0) or isinstance(given, list | tuple):
            return _unit_intervals(name, _numbers(name, given).astype(np.float64), shape)
        given = _number(name, given)
    if not 0.0 <= given <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {given!r}")
    return given


def _unit_intervals(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    _check_broadcast(name, array, shape)
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all():
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(f"{name} must be in [0, 1], got {array[where]} at index {where}")
    return array


def _check_broadcast(name: str, array: Array, shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}")


def _number(name: str, given: Any) -> float:
    if not isinstance(given, str | bytes):  # float() would read text
        try:
            return float(given)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            return math.inf
    raise TypeError(f"{name} must be a number in [0, 1], or an array of them, got {given!r}")


def _coefficient(given: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Rounded once, from float64; a number is rounded where it is used."""
    return np.broadcast_to(given.astype(dtype), shape) if isinstance(given, np.ndarray) else given


def _prev_done(given: object, mode: str | None, shape: tuple[int, ...]) -> Array | None:
    if given is None:
        return None
    if mode != NEXT_STEP:
        raise ValueError('prev_done tells where row 0 is a reset row, and only autoreset="next_step" has reset rows')
    return _flags("prev_done", given, shape, WITHOUT_TIME)


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


def _checked_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Output:
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"out must be a pair (advantages, returns), either of them None, got {type(out).__name__}")
    if out[0] is None and out[1] is None:
        raise ValueError("out is (None, None): there is nothing to compute")
    for i, array in enumerate(out):
        if array is None:
            continue
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"out[{i}] must be a NumPy array, got {type(array).__name__}")
        if array.shape != shape:
            raise ValueError(f"out[{i}] has shape {array.shape}; expected rewards' shape, {shape}")
        if array.dtype != dtype:
            raise TypeError(f"out[{i}] has dtype {array.dtype}; expected the working dtype {dtype}")
        if not array.flags.writeable:
            raise ValueError(f"out[{i}] is read-only")
        repeated = 0 in array.strides and [n for n, stride in zip(shape, array.strides, strict=True) if stride == 0]
        if repeated and array.size and max(repeated) > 1:
            raise ValueError(f"out[{i}] is a broadcast view: several of its elements share memory")
    if out[0] is not None and out[1] is not None and np.shares_memory(out[0], out[1]):
        raise ValueError("out[0] and out[1] share memory")
    return out[0], out[1]
