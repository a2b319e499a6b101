"""Check a call of ``gae`` as a whole. ``arguments`` and ``frame`` check each argument by itself."""

import warnings

import numpy as np

from fastgae._call import CONSTANTS, Array, Call
from fastgae._canonical.arguments import NEXT_STEP, as_switch, autoreset_mode, of_one_dtype, shown
from fastgae._canonical.frame import Frame, frame_of
from fastgae._interop import OnDevice
from fastgae._typing import Output

NORMALIZE = ("global", "per_env")
FIRST_CONSTANT = Call._fields.index(CONSTANTS[0])


def checked(
    given: Call,
    *,
    required: tuple[str, ...] = (),
    lambda_name: str = "gae_lambda",
    out_names: tuple[str, str] = ("out[0]", "out[1]"),
) -> Call:
    """Return the call with numbers of one dtype, flags as bool, and coefficients as floats or float64 arrays.

    Besides rewards and values, the arguments in ``required`` must be given. ``terminated`` stays None where it is left
    out. ``mask`` then holds all steps that exist: with ``autoreset="next_step"``, reset rows are left out of it. Error
    messages call the arguments ``lambda_name`` and ``out_names``, as the caller's function does.
    """
    rewards, values, last_values, next_values, final_values, last_advantages, ratios = of_one_dtype(
        ("rewards", "values", *required),
        rewards=given.rewards,
        values=given.values,
        last_values=given.last_values,
        next_values=given.next_values,
        final_values=given.final_values,
        last_advantages=given.last_advantages,
        ratios=given.ratios,
    )
    frame = frame_of("rewards", rewards, given.time_axis)
    longer = values.shape == frame.one_longer
    if values.shape != frame.shape and not longer:
        raise ValueError(
            f"values has shape {values.shape}; expected rewards' shape {frame.shape}, or {frame.one_longer} with V "
            f"after the last step{frame.fits_another_axis(values.shape)}"
        )
    mode = autoreset_mode(given.autoreset)
    if given.terminated is None and "terminated" not in required:
        check_one_sequence(
            last_values is not None, longer or next_values is not None, given.truncated is not None, mode
        )
        terminated = None
    else:
        terminated = frame.flags("terminated", given.terminated)
    _check_bootstrap(longer, last_values is not None, next_values is not None, given.truncated, frame)
    last_values = frame.envs("last_values", last_values)
    frame.check_steps("next_values", next_values)
    last_advantages = frame.envs("last_advantages", last_advantages)
    frame.check_steps("ratios", ratios)
    truncated = frame.step_flags("truncated", given.truncated)
    mask = frame.step_flags("mask", given.mask)
    if given.prev_done is not None and mode != NEXT_STEP:
        raise ValueError('prev_done tells where row 0 is a reset row, and only autoreset="next_step" has reset rows')
    prev_done = frame.env_flags("prev_done", given.prev_done)
    check_final_values(final_values, truncated, next_values is not None, mode)
    gamma = frame.coefficient("gamma", given.gamma)
    gae_lambda = frame.coefficient(lambda_name, given.gae_lambda)
    returns_lambda = given.returns_lambda
    if returns_lambda is not None:
        returns_lambda = frame.coefficient("returns_lambda", returns_lambda)
    tail_normalized = as_switch("tail_normalized", given.tail_normalized)
    carry_over = as_switch("carry_over", given.carry_over)
    _check_combination(
        returns_lambda is not None,
        tail_normalized,
        last_advantages is not None,
        carry_over,
        given.normalize is not None,
    )
    out = None if given.out is None else frame.outputs(given.out, rewards, out_names)
    _check_normalize(given.normalize, out)
    call = Call(  # by position, because keyword arguments take a microsecond longer
        rewards,
        values,
        terminated,
        truncated,
        last_values,
        next_values,
        final_values,
        mode,
        last_advantages,
        prev_done,
        mask,
        gamma,
        gae_lambda,
        returns_lambda,
        given.normalize,
        tail_normalized,
        carry_over,
        frame.axis,
        out,
        None,
        None,
        ratios,
        *given[FIRST_CONSTANT:],
    )
    # The backend of a GPU finds the reset rows itself, because to find them here would mean to wait for the GPU.
    return _without_reset_rows(call) if mode == NEXT_STEP and not isinstance(rewards, OnDevice) else call


def _without_reset_rows(call: Call) -> Call:
    """Return the call with a mask that leaves out the rows in which ``autoreset="next_step"`` resets an env."""
    if call.mask is not None and call.next_values is None:
        call = call._replace(next_values=next_existing_values(call.values, call.last_values, call.mask, call.time_axis))
    done = call.terminated if call.truncated is None else call.terminated | call.truncated
    return call._replace(mask=steps_without_resets(done, call.prev_done, call.time_axis, call.mask))


def warn_of_reset_rows(call: Call) -> None:
    """Warn if row 0 looks like a reset row: its reward is 0, as in all rows after a done, and in no other row."""
    if call.autoreset != NEXT_STEP or call.prev_done is not None or isinstance(call.rewards, OnDevice):
        return
    ends = call.terminated if call.truncated is None else call.terminated | call.truncated
    zero, done = (np.moveaxis(array, call.time_axis, 0) for array in (call.rewards == 0, ends))
    first, after, others = zero[0] & ~done[0], zero[1:][done[:-1]], zero[1:][~done[:-1]]
    if first.any() and after.size and after.all() and not others.any():
        warnings.warn(
            f"prev_done is missing, and row 0 looks like a reset row in {np.count_nonzero(first)} of {first.size} "
            "environments: its reward is 0, as in the rows after a done, and in no others. Pass prev_done, the flags "
            "terminated | truncated of the last row of the previous rollout; all False for the first rollout",
            stacklevel=4,  # the line that calls an estimator
        )


def steps_without_resets(done: Array, prev_done: Array | None, axis: int, mask: Array | None = None) -> Array:
    """Return where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    exists = np.empty_like(done)
    rows, ends = np.moveaxis(exists, axis, 0), np.moveaxis(done, axis, 0)
    before = np.zeros(ends.shape[1:], bool) if prev_done is None else prev_done
    if mask is None:
        rows[:1], rows[1:] = ~before, ~ends[:-1]
        return exists
    for t, unmasked in enumerate(np.moveaxis(mask, axis, 0)):
        rows[t] = unmasked & ~before
        before = np.where(unmasked, ends[t], before)
    return exists


def next_existing_values(values: Array, last_values: Array | None, mask: Array | None, axis: int) -> Array:
    """Return for every step the value of the next step in the mask, or ``last_values`` if there is none.

    Without ``last_values``, ``values`` is one longer along time and ends with them.
    """
    steps = np.moveaxis(values, axis, 0)
    if last_values is None:
        steps, last_values = steps[:-1], steps[-1]
    following = np.empty_like(np.moveaxis(steps, 0, axis))
    rows = np.moveaxis(following, axis, 0)
    if mask is None:
        rows[:-1], rows[-1:] = steps[1:], last_values
        return following
    exists = np.moveaxis(mask, axis, 0)
    upcoming = last_values
    for t in reversed(range(len(rows))):
        rows[t] = upcoming
        upcoming = np.where(exists[t], steps[t], upcoming)
    return following


def check_one_sequence(last: bool, after_last: bool, truncated: bool, mode: str | None) -> None:
    """Check a call without ``terminated``: every env is one sequence, and ``last_values`` holds the value after it.

    ``after_last``: another argument has the values after the last step.
    """
    if truncated:
        raise ValueError(
            "truncated is given without terminated: pass both; terminated is all False if no episode ended for good"
        )
    if mode == NEXT_STEP:
        raise ValueError(
            'autoreset="next_step" is given without terminated: pass both, because the reset rows follow its flags'
        )
    if after_last and not last:
        raise ValueError(
            "terminated is missing: pass terminated, the flags of the steps that ended an episode; all False if none"
        )
    if not last:
        raise ValueError(
            "terminated and last_values are both missing: pass terminated, the flags of the steps that ended an "
            "episode; or, if each env is one sequence, pass last_values, V of the state after its last step: 0 if it "
            "ended for good"
        )


def check_final_values(final: Array | None, truncated: Array | None, following: bool, mode: str | None) -> None:
    """Check that V' after a truncated step is given exactly once; ``following``: next_values are given."""
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
    if isinstance(final, OnDevice) and final.shape != truncated.shape:
        raise ValueError(
            f"final_values has shape {final.shape}; expected rewards' shape {truncated.shape}: to count the flags of "
            "truncated, the program would have to wait for the GPU"
        )
    if final.shape != truncated.shape and final.shape != (count := np.count_nonzero(truncated),):
        raise ValueError(
            f"final_values has shape {final.shape}; expected ({count},), one per True of truncated, or rewards' shape "
            f"{truncated.shape}"
        )


def _check_normalize(normalize: object, out: Output | None) -> None:
    if normalize is None:
        return
    if not isinstance(normalize, str) or normalize not in NORMALIZE:
        raise ValueError(f"normalize must be {' or '.join(map(repr, NORMALIZE))}, or None, got {shown(normalize)}")
    if out is not None and out[0] is None:
        raise ValueError("normalize changes only the advantages, and out has no array for them")


def _check_bootstrap(longer: bool, last: bool, following: bool, truncated: object, frame: Frame) -> None:
    if longer + last + following == 1:
        return
    names = ["values with one extra row"] * longer + ["last_values"] * last + ["next_values"] * following
    if names:
        raise ValueError(f"the value after the last step is given more than once: {' and '.join(names)}; keep one")
    if type(truncated) in (int, float) or getattr(truncated, "shape", None) in (frame.without_time, frame.one_step):
        raise ValueError(
            "last_values is missing, and truncated, the fourth argument, looks like it: pass last_values=... by name"
        )
    raise ValueError(
        "the value after the last step is missing: pass last_values, next_values, or values with one more row along "
        f"time than rewards' shape {frame.shape}"
    )


def _check_combination(
    returns_lambda: bool, tail_normalized: bool, last_advantages: bool, carry_over: bool, normalize: bool
) -> None:
    each, after = "call once for each", "call fastgae.normalize afterwards"
    for one, other, why in (
        (returns_lambda, last_advantages, f"last_advantages are of one lambda, and returns_lambda is another: {each}"),
        (returns_lambda, tail_normalized, f"returns_lambda has no tail-normalized form: {each}"),
        (tail_normalized, last_advantages, f"tail_normalized needs the steps that last_advantages stand for: {each}"),
        (carry_over, tail_normalized, f"carry_over has no tail-normalized form: {each}"),
        (carry_over, normalize, f"carry_over fills the steps that normalize leaves out: {after}"),
    ):
        if one and other:
            raise ValueError(why)


def has_options(call: Call) -> bool:
    """Return whether a checked call has an option, such as a mask or an array of coefficients."""
    return not (
        call.last_advantages is call.mask is call.returns_lambda is call.ratios is None
        and not call.tail_normalized
        and type(call.gamma) is type(call.gae_lambda) is float
    )
