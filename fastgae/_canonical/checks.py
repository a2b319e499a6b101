"""Check a call as a whole. ``arguments`` and ``frame`` check each argument by itself, ``packed`` packed sequences."""

import functools
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from fastgae._call import ABSENT, NEXT_STEP, ROLES, Array, Call, Declaration, Role
from fastgae._canonical.arguments import as_clip, as_count, as_share, as_switch, as_word, autoreset_mode, of_one_dtype
from fastgae._canonical.frame import Frame, frame_of
from fastgae._canonical.packed import checked_one_env
from fastgae._canonical.tree import as_one_tree
from fastgae._equation.arrays import Library, cut_at_the_end, without_reset_rows
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import as_array, kind_of
from fastgae._support.misnamed import NORMALIZE_ELSEWHERE
from fastgae._support.warn import warn_caller
from fastgae._typing import Normalize

NORMALIZE = get_args(Normalize)
GIVEN_TWICE = "the value after the last step is given more than once: {}; keep one"

# How an argument is checked that must fit the first one.
FITTED = {
    Role.STEPS: Frame.steps,
    Role.ENVS: Frame.envs,
    Role.STEP_FLAGS: Frame.flags,
    Role.ENV_FLAGS: Frame.env_flags,
    Role.COEFFICIENT: Frame.coefficient,
    Role.FACTORS: Frame.factors,
}


# How a setting is read that is a number or a switch.
SETTINGS: dict[str, Callable[[str, Any], Any]] = {
    "tail_normalized": as_switch,
    "carry_over": as_switch,
    "n": as_count,
    "rho_clip": as_clip,
    "c_clip": as_clip,
    "advantage_clip": as_clip,
    "leaky": as_share,
}


@functools.cache
def _fitted(estimator: Declaration) -> list[tuple[str, str, Callable[[Frame, str, Any], Any]]]:
    """Return the fields that must fit the first one, what the estimator calls them, and how they are checked."""
    names = {field: estimator.word(field) for field in Call._fields}
    return [
        (field, name, FITTED[ROLES[name]])
        for field, name in names.items()
        if ROLES[name] in FITTED and field not in ("rewards", "values", "final_values")  # their shapes differ
    ]


def checked(estimator: Declaration, given: Call) -> Call:
    """Return the call with numbers of one dtype, flags as bool, and coefficients as floats or float64 arrays.

    ``terminated`` stays None where it is left out. ``mask`` then holds all steps that exist: with
    ``autoreset="next_step"``, reset rows are left out of it. Packed sequences become one env.
    """
    packed: dict[str, Any] = {}
    if given.cu_seqlens is not None and given.cu_seqlens is not ABSENT:
        given, packed = checked_one_env(given)
    if "parents" in estimator.required:
        given, packed = as_one_tree(given)
    read = given._asdict()
    fields = [
        field
        for field in estimator.numbers
        if field in estimator.required or not (read[field] is None or read[field] is ABSENT)
    ]
    numbers = of_one_dtype(**{estimator.word(field): read[field] for field in fields})
    read.update(zip(fields, numbers, strict=True), autoreset=autoreset_mode(given.autoreset))
    call = Call._make(read.values())
    frame = frame_of(estimator.word("rewards"), call.rewards, call.time_axis)
    longer = _is_longer(frame, call.values)
    if call.terminated is None:
        _check_one_sequence(call, longer)
    if call.values is not ABSENT:
        _check_bootstrap(longer, call, frame)
    for field, name, fitted in _fitted(estimator):
        argument = read[field]
        if argument is not ABSENT and (argument is not None or Call._field_defaults[field] is not None):
            try:
                read[field] = fitted(frame, name, argument)
            except ValueError as error:
                if name == "terminated" and call.values is not ABSENT and _holds_flags(given.values):
                    raise ValueError(f"{error}; values holds flags: did you swap values and terminated?") from error
                raise
    call = Call._make(read.values())
    if call.prev_done is not None and call.autoreset != NEXT_STEP:
        raise ValueError('prev_done tells where row 0 is a reset row, and only autoreset="next_step" has reset rows')
    _check_final_values(call)
    for field, setting in SETTINGS.items():
        if field in estimator.fields:
            read[field] = setting(field, read[field])
    names = ("out", "out") if estimator.result else ("out[0]", "out[1]")
    read["time_axis"], read["out"] = frame.axis, frame.outputs(call.out, call.rewards, names)
    read.update(packed)
    call = Call._make(read.values())
    _check_combination(call)
    _check_normalize(call.normalize, call.out)
    on_device = isinstance(call.rewards, OnDevice)
    if call.values is ABSENT and call.terminated is not ABSENT:
        _check_ends(call)
        if call.next_values is not None and not on_device:
            return cut_at_the_end(Library(call.rewards, frame.axis), call)
    # The backend of a GPU finds the reset rows itself, because to find them here would mean to wait for the GPU.
    return without_reset_rows(call) if call.autoreset == NEXT_STEP and not on_device else call


def _holds_flags(given: Any) -> bool:
    """Return whether an argument holds bool, or only 0 and 1, and both of them."""
    if isinstance(given, OnDevice) or (array := as_array("values", given)).dtype.kind not in "biuf":
        return False
    return array.dtype.kind == "b" or {*np.unique(array).tolist()} == {0, 1}


def _is_longer(frame: Frame, values: Any) -> bool:
    """Return whether values have a row more than rewards, for the state after the last step."""
    if values is ABSENT or values.shape == frame.shape:
        return False
    if values.shape == frame.one_longer:
        return True
    raise ValueError(
        f"values has shape {values.shape}; expected rewards' shape {frame.shape}, or {frame.one_longer} with V after "
        f"the last step{frame.advice('values', values)}"
    )


def warn_of_reset_rows(call: Call) -> None:
    """Warn if row 0 looks like a reset row: its reward is 0, as in all rows after a done, and in no other row."""
    if call.autoreset != NEXT_STEP or call.prev_done is not None or not call.rewards.size:
        return
    ends = call.terminated if call.truncated is None else call.terminated | call.truncated
    zero, done = (np.moveaxis(array, call.time_axis, 0) for array in (call.rewards == 0, ends))
    first, after, others = zero[0] & ~done[0], zero[1:][done[:-1]], zero[1:][~done[:-1]]
    if first.any() and after.size and after.all() and not others.any():
        warn_caller(
            f"prev_done is missing, and row 0 looks like a reset row in {np.count_nonzero(first)} of {first.size} "
            "environments: its reward is 0, as in the rows after a done, and in no others. Pass prev_done, the flags "
            "terminated | truncated of the last row of the previous rollout; all False for the first rollout"
        )


def _check_one_sequence(call: Call, longer: bool) -> None:
    """Check a call where ``terminated`` is None: every env is one sequence, with the value after it in last_values."""
    last = call.last_advantages if call.values is ABSENT else call.last_values
    none = "terminated=None says that no step ends an episode"
    if call.truncated is not None:
        raise ValueError(
            f"{none}, but truncated is given: pass both; terminated is all False if no episode ended for good"
        )
    if call.autoreset == NEXT_STEP:
        raise ValueError(
            f'{none}, but autoreset="next_step" is given: pass terminated, because the reset rows follow its flags'
        )
    if last is None and (longer or call.next_values is not None):
        raise ValueError(
            f"{none}, and then V after the last step is last_values: pass it instead of next_values or of the last row "
            "of values, or pass terminated, the flags of the steps that ended an episode; all False if none"
        )
    if last is None:
        raise ValueError(
            f"{none}, and last_values is missing: pass terminated, the flags of the steps that ended an episode; or, "
            "if each env is one sequence, pass last_values, V of the state after its last step: 0 if it ended for good"
        )


def _check_bootstrap(longer: bool, call: Call, frame: Frame) -> None:
    """Check that V after the last step is given exactly once."""
    names = ["values with one extra row"] * longer
    names += [name for name in ("last_values", "next_values") if getattr(call, name) is not None]
    if len(names) == 1:
        return
    if names:
        raise ValueError(GIVEN_TWICE.format(" and ".join(names)))
    shape = getattr(call.truncated, "shape", None)
    per_env = shape in (frame.without_time, frame.one_step) and shape != frame.shape  # equal where there is one step
    if type(call.truncated) in (int, float) or per_env:
        raise ValueError(
            "last_values is missing, and truncated, the fourth argument, is no array of flags: pass last_values=..., "
            "and numbers such as gamma=..., by name"
        )
    raise ValueError(
        "the value after the last step is missing: pass last_values, next_values, or values with one more row along "
        f"time than rewards' shape {frame.shape}; where that step terminated an episode, the value is not read: pass 0"
    )


def _check_final_values(call: Call) -> None:
    """Check that V' after a truncated step is given exactly once."""
    final, truncated, following = call.final_values, call.truncated, call.next_values is not None
    if truncated is None:
        if final is None:
            return
        raise ValueError(
            "final_values is given without truncated: it holds V of the final observation of truncated steps; pass "
            "truncated too, or leave final_values out"
        )
    if final is None:
        if following or call.autoreset == NEXT_STEP:
            return
        why = mode_of_values = ""
        if call.values is not ABSENT:
            why = "values[t + 1] may belong to another episode, so "
            mode_of_values = ', or say autoreset="next_step" where values[t + 1] is V of the final observation'
        raise ValueError(
            f"truncated is given, but {why}the value after a truncated step is unknown: pass final_values (V of the "
            f"final observations), or next_values (V of every next observation before any reset){mode_of_values}"
        )
    if call.autoreset == NEXT_STEP:
        raise ValueError('autoreset="next_step" has V of the final observations in values: leave final_values out')
    if following:
        raise ValueError("final_values and next_values both hold the value after a truncated step: keep one")
    if final.shape == truncated.shape:
        return
    if not isinstance(final, OnDevice):
        if final.shape != (count := np.count_nonzero(truncated),):
            raise ValueError(
                f"final_values has shape {final.shape}; expected ({count},), one per True of truncated, or rewards' "
                f"shape {truncated.shape}"
            )
    elif kind_of(final.array) != "jax":
        raise ValueError(
            f"final_values has shape {final.shape}; expected rewards' shape {truncated.shape}: to count the flags of "
            "truncated, the program would have to wait for the GPU"
        )
    elif final.ndim != 1:
        raise ValueError(
            f"final_values has shape {final.shape}; expected one dimension, one per True of truncated, or rewards' "
            f"shape {truncated.shape}"
        )


def _check_ends(call: Call) -> None:
    """Check that a recursion of rewards alone has a value after the last step wherever it needs one."""
    if call.next_values is not None and call.last_advantages is not None:
        raise ValueError(GIVEN_TWICE.format("last_values and next_values"))
    known = call.next_values is not None or call.last_advantages is not None
    if known or isinstance(call.rewards, OnDevice):
        return  # On a GPU the flags are not read: after an episode that the rollout does not end, the value is 0.
    done = call.terminated if call.truncated is None else call.terminated | call.truncated
    if not _end_with(done, call.mask, call.time_axis):
        raise ValueError(
            "the last step does not end every episode: pass last_values, V of the state after it, or next_values"
        )


def _end_with(done: Array, exists: Array | None, axis: int) -> bool:
    """Return whether the last existing step of every env, if it has any, ends an episode."""
    if not done.size:
        return True
    if exists is None:
        return bool(done.take(-1, axis).all())
    last = done.shape[axis] - 1 - np.flip(exists, axis).argmax(axis, keepdims=True)
    return bool((np.take_along_axis(done, last, axis) | ~exists.any(axis, keepdims=True)).all())


def _check_normalize(normalize: object, out: tuple[Any, Any]) -> None:
    if normalize is None:
        return
    as_word("normalize", normalize, NORMALIZE, NORMALIZE_ELSEWHERE, ", or None")
    if out[0] is None:
        raise ValueError("normalize changes only the advantages, and out has no array for them")


def _check_combination(call: Call) -> None:
    returns_lambda, last_advantages = call.returns_lambda is not None, call.last_advantages is not None
    each, after = "call once for each", "call fastgae.normalize afterwards"
    for one, other, why in (
        (returns_lambda, last_advantages, f"last_advantages are of one lambda, and returns_lambda is another: {each}"),
        (returns_lambda, call.tail_normalized, f"returns_lambda has no tail-normalized form: {each}"),
        (
            call.tail_normalized,
            last_advantages,
            "tail_normalized needs the steps that last_advantages stand for: pass them, and leave last_advantages out",
        ),
        (call.carry_over, call.tail_normalized, f"carry_over has no tail-normalized form: {each}"),
        (call.carry_over, call.normalize is not None, f"carry_over fills the steps that normalize leaves out: {after}"),
    ):
        if one and other:
            raise ValueError(why)
