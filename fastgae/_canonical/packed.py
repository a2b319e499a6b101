"""Turn packed sequences into one env whose episodes end with them."""

from operator import itemgetter
from typing import Any

import numpy as np

from fastgae._call import ABSENT, WORKING_DTYPES, Array, Call, working_dtype
from fastgae._canonical.arguments import as_boundaries, end_to_end, of_one_dtype, one_for_each, refuse_per_env, shown
from fastgae._canonical.frame import Frame, as_unit_interval
from fastgae._interop.arrays import OnDevice, is_narrow
from fastgae._interop.libraries import as_array

READ = ("rewards", "values", "terminated", "last_values", "mask", "normalize", "cu_seqlens")
_read = itemgetter(*map(Call._fields.index, READ))
CHANGED = ("terminated", "truncated", "last_values", "final_values", "cu_seqlens")
TERMINATED, TRUNCATED, LAST_VALUES, FINAL_VALUES, CU_SEQLENS = map(Call._fields.index, CHANGED)
COEFFICIENTS = {name: Call._fields.index(name) for name in ("gamma", "gae_lambda", "returns_lambda")}
BOOL = np.dtype(bool)
NUMBERS = np.typecodes["AllInteger"] + "efd"  # wider floats, and those of other packages, are refused by the checks
LARGEST_SINGLE = float(np.finfo(np.float32).max)
NEAR = 8  # steps to look back one by one, which takes less time than to list all steps in the mask


def as_one_env(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the call of one env, in place of a call with ``cu_seqlens`` that the short cut has declined.

    Any other call is returned as it is, and so is one with numbers that the checks must convert first.
    """
    if len(given) <= CU_SEQLENS or given[CU_SEQLENS] is None:
        return given
    rewards, values, _, last, *_ = _read(given)
    if (
        type(rewards) is type(values) is np.ndarray
        and rewards.dtype.char in NUMBERS
        and values.dtype.char in NUMBERS
        and rewards.ndim == 1
        and values.shape == rewards.shape
    ):
        if type(last) is float and abs(last) <= LARGEST_SINGLE:
            wide = (WORKING_DTYPES[0] if is_narrow(each.dtype) else each.dtype for each in (rewards, values))
            last = np.asarray(last, working_dtype(*wide))
        if last is None or (type(last) is np.ndarray and last.dtype.char in NUMBERS):
            return _one_env(given, last)
    return given


def _one_env(given: tuple[Any, ...], last: Array | None) -> tuple[Any, ...]:
    rewards, _, terminated, _, mask, normalize, boundaries = _read(given)
    refuse_per_env(normalize, "packed sequences")
    starts, total = as_boundaries(boundaries), len(rewards)
    firsts, nexts = starts[:-1], starts[1:]
    some = nexts > firsts  # compared, because differences can overflow
    whole = np.count_nonzero(some) == len(some)
    if starts[0] != 0 or starts[-1] != total or not (whole or (nexts >= firsts).all()):
        raise ValueError(
            f"cu_seqlens must rise from 0 to the number of steps, {total}, got {shown(boundaries)}"
            f"{_advice(starts, total)}"
        )
    if last is not None:
        last = one_for_each("last_values", last, firsts.shape, "one per sequence")
    ended, exists = _flags("terminated", terminated, rewards), _flags("mask", mask, rewards)
    last_steps = nexts - 1
    if not whole:
        firsts, last_steps, last = _those(some, firsts, last_steps, last)
    if exists is not None:  # the end must be a flag of a step in the mask, because other flags are ignored
        left = np.flatnonzero(~exists[last_steps])
        if len(left):
            _look_back(exists, firsts, last_steps, left)
            last_steps, last = _those(last_steps >= firsts, last_steps, last)
    ends = np.zeros(total, bool)
    ends[last_steps] = True
    fields = list(given)
    fields[CU_SEQLENS], fields[LAST_VALUES] = ABSENT, 0.0  # never read, because sequences end with a flag
    if last is None:
        fields[TERMINATED] = ends if ended is None else np.logical_or(ends, ended, out=ends)
    else:
        fields[TERMINATED] = np.zeros(total, bool) if ended is None else ended
        fields[TRUNCATED], fields[FINAL_VALUES] = ends, last
    for name, place in COEFFICIENTS.items():
        if not (fields[place] is None or type(fields[place]) is float):
            fields[place] = _per_step(name, fields[place], starts)
    return tuple(fields)


def _flags(name: str, given: Any, like: Array) -> Array | None:
    if given is None or (type(given) is np.ndarray and given.dtype == BOOL and given.shape == like.shape):
        return given
    return Frame("rewards", like.shape, 0).flags(name, given)


def _look_back(exists: Array, firsts: Array, steps: Array, left: Array) -> None:
    """Turn the steps that are left into the last ones before them in the mask, or into ones before their sequence."""
    for _ in range(NEAR):
        steps[left] -= 1
        left = left[(steps[left] >= firsts[left]) & ~exists[steps[left]]]
        if not len(left):
            return
    before = np.concatenate([[-1], np.flatnonzero(exists)])
    steps[left] = before[np.searchsorted(before, steps[left]) - 1]


def _those(which: Array, *of: Array | None) -> tuple[Any, ...]:
    """Return some elements of each array."""
    return tuple(None if array is None else array[which] for array in of)


def checked_one_env(given: Call) -> tuple[Call, dict[str, Any]]:
    """Return the unchecked call of one env from any call with ``cu_seqlens``, and what to replace after its checks."""
    end_to_end(given.rewards, "all sequences end to end. gae takes a padded batch, with mask and time_axis=1")
    rewards, values, last = of_one_env(given.rewards, given.values, given.last_values)
    if isinstance(given.rewards, OnDevice):
        refuse_per_env(given.normalize, "packed sequences")
        packed = _for_kernel(given, len(rewards), last)
        ones = {name: 1.0 for name in COEFFICIENTS if name in packed}
        return given._replace(rewards=rewards, values=values, last_values=0.0, **ones), packed
    return Call._make(_one_env(given._replace(rewards=rewards, values=values), last)), {}


def _for_kernel(given: Call, total: int, last: Array | None) -> dict[str, Any]:
    """Check all but the numbers of the boundaries, which the kernel reads. It needs no flags where sequences end."""
    starts = as_boundaries(given.cu_seqlens)
    sequences = len(starts) - 1
    if total and not sequences:
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {total}, but has no sequence")
    if last is not None:
        last = one_for_each("last_values", last, (sequences,), "one per sequence", on_device=True)
    coefficients = {name: getattr(given, name) for name in COEFFICIENTS}
    per_sequence = {
        name: as_unit_interval(name, coefficient)
        for name, coefficient in coefficients.items()
        if _is_per_sequence(name, coefficient, sequences, total)
    }
    return {"last_values": last, "cu_seqlens": starts, **per_sequence}


def of_one_env(rewards: Any, values: Any, last_values: Any) -> tuple[Array, Array, Array | None]:
    """Return rewards, values and the values after sequences or leaves in one dtype."""
    optional = {} if last_values is None else {"last_values": last_values}
    rewards, values, *last = of_one_dtype(rewards=rewards, values=values, **optional)
    return rewards, Frame("rewards", rewards.shape, 0).steps("values", values), last[0] if last else None


def _advice(starts: Array, total: int) -> str:
    """Return what would make boundaries of these integers."""
    if starts.sum() == total and (starts >= 0).all():
        return "; these are lengths: pass np.cumsum([0, *lengths])"
    if starts[0] >= 0 and starts[-1] <= total and (np.diff(starts) >= 0).all():
        if starts[0] == 0:
            return f"; the end of the last sequence is missing: pass np.append(cu_seqlens, {total})"
        if starts[-1] == total:
            return "; the start of the first sequence is missing: pass np.append(0, cu_seqlens)"
    return ""


def _per_step(name: str, coefficient: Any, starts: Array) -> Any:
    """Return a coefficient that is given per sequence as one per step. Any other one is left for gae to check."""
    given = as_array(name, coefficient) if isinstance(coefficient, list | tuple) else coefficient
    if not _is_per_sequence(name, given, len(starts) - 1, int(starts[-1])):
        return given
    return np.repeat(as_unit_interval(name, given)[:, 0], np.diff(starts).astype(np.intp))


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
