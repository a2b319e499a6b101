"""Which steps exist, where a mask or reset rows leave some out, and the values that come after them."""

import numpy as np

from fastgae._call import Array, Call


def time_first(array: Array, axis: int) -> Array:
    """Return a view whose first axis is time. NumPy takes microseconds even where that changes nothing."""
    return np.moveaxis(array, axis, 0) if axis else array


def without_reset_rows(call: Call) -> Call:
    """Return the call with a mask that leaves out the rows in which ``autoreset="next_step"`` resets an env."""
    if call.mask is not None and call.next_values is None:
        call = call._replace(next_values=next_existing_values(call.values, call.last_values, call.mask, call.time_axis))
    done = call.terminated if call.truncated is None else call.terminated | call.truncated
    return call._replace(mask=steps_without_resets(done, call.prev_done, call.time_axis, call.mask))


def with_next_values(call: Call) -> Call:
    """Return a call from ``without_reset_rows`` as one without autoreset: V' of every step is in ``next_values``."""
    following = call.next_values
    if following is None:
        following = next_existing_values(call.values, call.last_values, None, call.time_axis)
    axis = call.time_axis
    values = call.values[(slice(None),) * axis + (slice(call.rewards.shape[axis]),)]
    return call._replace(values=values, last_values=None, next_values=following, autoreset=None, prev_done=None)


def steps_without_resets(done: Array, prev_done: Array | None, axis: int, mask: Array | None = None) -> Array:
    """Return where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    exists = np.empty_like(done)
    rows, ends = time_first(exists, axis), time_first(done, axis)
    before = np.zeros(ends.shape[1:], bool) if prev_done is None else prev_done
    if mask is None:
        rows[:1], rows[1:] = ~before, ~ends[:-1]
        return exists
    for t, unmasked in enumerate(time_first(mask, axis)):
        rows[t] = unmasked & ~before
        before = np.where(unmasked, ends[t], before)
    return exists


def next_existing_values(values: Array, last_values: Array | None, mask: Array | None, axis: int) -> Array:
    """Return for every step the value of the next step in the mask, or ``last_values`` if there is none.

    Without ``last_values``, ``values`` is one longer along time and ends with them.
    """
    steps = time_first(values, axis)
    if last_values is None:
        steps, last_values = steps[:-1], steps[-1]
    following = np.empty_like(np.moveaxis(steps, 0, axis) if axis else steps)
    rows = time_first(following, axis)
    if mask is None:
        rows[:-1], rows[-1:] = steps[1:], last_values
        return following
    exists = time_first(mask, axis)
    upcoming = last_values
    for t in reversed(range(len(rows))):
        rows[t] = upcoming
        upcoming = np.where(exists[t], steps[t], upcoming)
    return following
