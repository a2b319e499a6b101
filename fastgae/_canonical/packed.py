"""Check packed sequences, and turn them into one env whose episodes end with them."""

from typing import Any

import numpy as np

from fastgae._call import Array, Call
from fastgae._canonical.arguments import as_boundaries, end_to_end, of_one_dtype, one_for_each, shown
from fastgae._canonical.frame import Frame, as_unit_interval
from fastgae._interop import OnDevice, as_array

COEFFICIENTS = ("gamma", "gae_lambda", "returns_lambda")


def as_one_env(given: Call) -> tuple[Call, dict[str, Any]]:
    """Return the unchecked call of one env, from a call with ``cu_seqlens``, and what to replace after its checks."""
    if given.normalize == "per_env":
        raise ValueError('normalize must be "global" or None: packed sequences are not envs')
    call = given._replace(cu_seqlens=None, last_values=0.0)  # never read, because sequences end with a flag
    if isinstance(given.rewards, OnDevice):
        numbers, packed = _for_kernel(given)
        return call._replace(**numbers, **{name: 1.0 for name in COEFFICIENTS if name in packed}), packed
    lengths, last_steps, ended, last = _checked_sequences(given)
    ends = np.zeros(lengths.sum(), bool)
    ends[last_steps] = True
    inside = np.zeros(len(ends), bool) if ended is None else ended
    return call._replace(
        terminated=inside | ends if last is None else inside,
        truncated=None if last is None else ends,
        final_values=last,
        **{name: _per_step(name, getattr(given, name), lengths) for name in COEFFICIENTS},
    ), {}


def _for_kernel(given: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check all but the numbers of the boundaries. The kernel reads them, and needs no flags where sequences end.

    Return what to replace before the other checks, and after them.
    """
    rewards, values, last = _numbers(given)
    total, starts = len(rewards), as_boundaries("cu_seqlens", given.cu_seqlens)
    sequences = len(starts) - 1
    if total and not sequences:
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {total}, but has no sequence")
    if last is not None:
        last = one_for_each("last_values", last, (sequences,), "one per sequence", on_device=True)
    coefficients = {name: getattr(given, name) for name in COEFFICIENTS}
    per_sequence = {
        name: as_unit_interval(name, coefficient, _fits)
        for name, coefficient in coefficients.items()
        if _is_per_sequence(name, coefficient, sequences, total)
    }
    return {"rewards": rewards, "values": values}, {"last_values": last, "cu_seqlens": starts, **per_sequence}


def _numbers(given: Call) -> tuple[Array, Array, Array | None]:
    """Return rewards, values and the values after sequences in one dtype."""
    shape = end_to_end("rewards", given.rewards).shape
    optional = {} if given.last_values is None else {"last_values": given.last_values}
    rewards, values, *last = of_one_dtype(rewards=given.rewards, values=given.values, **optional)
    return rewards, Frame("rewards", shape, 0, ()).steps("values", values), last[0] if last else None


def _checked_sequences(given: Call) -> tuple[Array, Array, Array | None, Array | None]:
    """Check the arguments that a rollout of one env does not have, or has in another form.

    Return the length of each sequence, the last step that exists of each sequence that has one, the flags, and the
    values after those last steps.
    """
    rewards, _, last = _numbers(given)
    frame, total = Frame("rewards", rewards.shape, 0, ()), len(rewards)
    starts = as_boundaries("cu_seqlens", given.cu_seqlens)
    firsts, nexts = starts[:-1], starts[1:]
    some = nexts > firsts  # compared, because differences can overflow
    whole = bool(some.all())
    if starts[0] != 0 or starts[-1] != total or not (whole or (nexts >= firsts).all()):
        raise ValueError(
            f"cu_seqlens must rise from 0 to the number of steps, {total}, got {shown(given.cu_seqlens)}"
            f"{_advice(starts, total)}"
        )
    lengths, ends = nexts - firsts, nexts - 1
    ended = None if given.terminated is None else frame.flags("terminated", given.terminated)
    if last is not None:
        last = one_for_each("last_values", last, lengths.shape, "one per sequence")
    if given.mask is not None:  # the end must be a flag of a step in the mask, because other flags are ignored
        before = np.concatenate([[-1], np.flatnonzero(frame.flags("mask", given.mask))])
        ends = before[np.searchsorted(before, ends, "right") - 1]
        some = ends >= firsts
    elif whole:
        return lengths, ends, ended, last
    return lengths, ends[some], ended, None if last is None else last[some]


def _advice(starts: Array, total: int) -> str:
    """Return what would make boundaries of these integers."""
    if starts.sum() == total and (starts >= 0).all():
        return "; these are lengths: pass np.cumsum([0, *lengths])"
    if starts[0] == 0 and starts[-1] <= total and (np.diff(starts) >= 0).all():
        return f"; the end of the last sequence is missing: pass np.append(cu_seqlens, {total})"
    return ""


def _per_step(name: str, coefficient: Any, lengths: Array) -> Any:
    """Return a coefficient that is given per sequence as one per step. Any other one is left for gae to check."""
    given = as_array(name, coefficient) if isinstance(coefficient, list | tuple) else coefficient
    if not _is_per_sequence(name, given, len(lengths), int(lengths.sum())):
        return given
    return np.repeat(as_unit_interval(name, given, _fits)[:, 0], lengths)


def _is_per_sequence(name: str, given: Any, sequences: int, total: int) -> bool:
    """Return whether a coefficient has shape (sequences, 1), as in a batch of padded sequences along axis 1."""
    shape = getattr(given, "shape", ())
    if shape in ((), (1,), (total,)):
        return False
    if shape == (sequences, 1):
        return True
    raise ValueError(
        f"{name} has shape {shape}; expected one number, one per step, {(total,)}, or one per sequence, "
        f"{(sequences, 1)}"
    )


def _fits(name: str, array: Array) -> None:
    """Accept an array whose shape has been checked."""
