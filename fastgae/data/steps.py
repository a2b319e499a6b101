"""Compute rows of episodes: files, tables and clusters all use this computation.

Rows are computed in one call of an estimator over one env, whose episodes end where the episodes of the rows end. If an
episode goes on after them, a few numbers are carried over from its next row. ``estimators.py`` says which; they replace
all later rows, with the same bits.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastgae._call import Array, GAEResult
from fastgae.data.errors import argument, column_argument
from fastgae.data.estimators import ESTIMATORS, Carried, How, Rows

BLOCK = 65_536
UNFLAGGED = "the episode ends without a flag"

# The name of an episode: one item of each column that takes part in it.
Name: TypeAlias = tuple[Any, ...]


class RowError(ValueError):
    """A fault of one row. Code that knows the row's file adds the place to the message."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row, self.fault = row, fault


class Success(NamedTuple):
    """Rewards from success: that of every step but the last of an episode, and what a failure costs at the last one.

    They make the returns the negative number of steps that are left until success (pi*0.6, RECAP).
    """

    step: float
    failure: float

    @classmethod
    def named(cls, text: str) -> tuple[str, "Success"]:
        """Return the column of success, and the rewards, from "COLUMN:STEP:FAILURE"."""
        column, *numbers = str(text).rsplit(":", 2)
        try:
            step, failure = map(float, numbers)
            if not (column and isfinite(step) and isfinite(failure) and failure >= 0):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{argument('rewards')} must be COLUMN:STEP:FAILURE, such as success:-1:100 for -1 a step, 0 at "
                f"success and -100 at failure, got {text!r}"
            ) from None
        return column, cls(step, failure)

    def rewards(self, succeeded: Array, last: Array) -> Array:
        """Return the rewards; ``succeeded`` is read in the last row of each episode alone."""
        wrong = last & (succeeded != 0) & (succeeded != 1)
        if wrong.any():
            check_none(wrong, f"the column of success holds {succeeded[wrong][0]:g}; expected 0 or 1")
        ends = np.where(succeeded != 0, 0.0, -self.failure)
        rewards: Array = np.where(last, ends, self.step)
        return rewards


class RecordedSteps(NamedTuple):
    """Rows that follow each other, as arrays of one length; or of one shape (T, N) for N envs, without names."""

    name: Callable[[int], Name]  # of the episode of a row
    changes: Array  # True where a row and the next have episodes of different names; one shorter than the others
    step: Array | None  # integers that rise by one from row to row of an episode
    rewards: Array
    values: Array | None  # None: there are none, and the estimator needs none
    terminated: Array
    truncated: Array
    next_values: Array | None = None  # V' of every row
    final_values: Array | None = None  # V' of the last row of an episode, read only there; NaN where there is none
    restarts: bool = True  # the steps of one name may begin again after a flag, as the steps of an env do
    success: Success | None = None  # the rewards that follow from ``rewards`` if it says success
    unflagged: str | None = None  # what to do about an end without a flag, where only a flag can tell an end


class Following(NamedTuple):
    """The numbers that rows need from the first row after them."""

    name: Name
    step: int | None
    carried: Carried
    row: int = 0  # its number in the source


def last_rows(steps: RecordedSteps, following: Following | None) -> Array:
    """Return True where an episode ends: at a flag, before a row of another name, and at the end of everything."""
    last: Array = steps.terminated | steps.truncated
    last[:-1] |= steps.changes
    if following is None or steps.name(len(last) - 1) != following.name:
        last[-1:] = True
    return last


def compute_run(
    steps: RecordedSteps, last: Array, following: Following | None, how: How
) -> tuple[GAEResult[Any], Following]:
    """Return the results of rows in which ``disorder`` and ``unknown_end`` find no fault, and the numbers that the rows
    before them need; ``last``: where episodes end, as ``last_rows`` says.
    """
    rows = checked_rows(steps, last, how)
    carried = None if following is None or last[-1].all() else following.carried  # None: all episodes end here
    results, before = ESTIMATORS[how.estimator].compute(rows, carried, how)
    step = None if steps.step is None else int(steps.step[0])
    return results, Following(steps.name(0), step, before)


def checked_rows(steps: RecordedSteps, last: Array, how: How) -> Rows:
    """Return the rows as one env."""
    rewards = steps.rewards
    if steps.success is not None:  # in the dtype of the values, which is that of the results, or float32 without values
        others = (steps.values, steps.next_values, steps.final_values)
        kind = np.result_type(np.float32, *(array.dtype for array in others if array is not None))
        rewards = steps.success.rewards(rewards, last).astype(kind)
    check_finite("rewards", rewards)
    if steps.values is not None:
        check_finite("values", steps.values)
    terminated = steps.terminated | last if how.ends == "terminated" else steps.terminated
    truncated = last & ~terminated
    if steps.next_values is not None:
        read = ~terminated if ESTIMATORS[how.estimator].every_value else truncated
        check_finite("next_values", steps.next_values, read)
        return Rows(rewards, steps.values, terminated, truncated, steps.next_values, None)
    # If no state is behind an end, an empty array with a dtype that does not change the dtype of the results.
    none: Array = (rewards if steps.values is None else steps.values)[:0].reshape(-1)
    final = none if steps.final_values is None else steps.final_values[truncated]
    return Rows(rewards, steps.values, terminated, truncated, None, final)


def unknown_end(steps: RecordedSteps, last: Array, how: How) -> RowError | None:
    """Return the fault of the first row at which an episode ends, although nothing says what follows it."""
    if steps.unflagged is not None:
        wrong = last & ~(steps.terminated | steps.truncated)
        if (fault := _first(wrong, UNFLAGGED, steps.unflagged)) is not None:
            return fault
    if how.ends == "terminated" or steps.next_values is not None:
        return None
    unknown = last & ~steps.terminated
    if steps.final_values is not None:
        unknown &= np.isnan(steps.final_values)
    # A row of several envs is of arrays, which may hold what gae takes.
    stored = ", store last_values and, with truncated steps, final_values" if steps.rewards.ndim > 1 else ""
    way = (
        f"and there is no value of the state after it: name a column of next_values{stored}, or add "
        "one of next_observations if a critic reads observations, or say "
        f"{argument('ends', 'terminated')} if every episode ends for good"
    )
    return _first(unknown & steps.truncated, "the episode is truncated", way) or _first(unknown, UNFLAGGED, way)


def disorder(steps: RecordedSteps, last: Array, following: Following | None) -> RowError | None:
    """Return the fault of the first step that does not rise by one in its episode, or comes again after a flag."""
    if steps.step is None:
        return None
    jumps = _jumps(steps.step)
    before, after = steps.step[jumps], steps.step[jumps + 1]
    wrong = ~last[jumps]
    if not steps.restarts:
        wrong |= (after <= before) & ~steps.changes[jumps]
    if wrong.any():
        at = int(np.argmax(wrong))
        return RowError(int(jumps[at]), _followed(int(before[at]), int(after[at]), steps.restarts))
    if following is None or following.name != steps.name(len(last) - 1) or following.step is None:
        return None
    end = int(steps.step[-1])
    if (following.step != end + 1 and not last[-1]) or (following.step <= end and not steps.restarts):
        return RowError(len(last) - 1, _followed(end, following.step, steps.restarts))
    return None


def _followed(step: int, following: int, has_no_names: bool) -> str:
    no_step = f"let no column be the step: {column_argument('step', None)}"
    if following > step:
        way = f"if steps were dropped on purpose, {no_step}"
    elif has_no_names:
        way = f"name a column of episode, by {column_argument('episode')}; or, if flags end episodes, and rows of an "
        way += f"env are in the order of time, {no_step}"
    else:
        of_files = f"{column_argument('file')}, or, where compute reads the files, {argument('episode_is', 'file')}"
        way = f"if episodes have the same names, of several files, pass {of_files}; of envs, {column_argument('env')}"
    return f"step {step} is followed by step {following}: {way}"


def _jumps(step: Array) -> Array:
    """Return the rows whose step does not rise by one to the next. They are few, and a block stays in the cache."""
    found = []
    for first in range(0, len(step), BLOCK):
        after = step[first + 1 : first + BLOCK + 1]
        before = step[first : first + len(after)]
        jumps = (before + 1 != after) | (after <= before)  # of 8 bits, 255 and one more is 0
        found.append(first + np.flatnonzero(jumps))
    return np.concatenate(found)


def check_finite(role: str, numbers: Array, read: Array | bool = True) -> None:
    """Check that no number which is read is NaN or infinite."""
    with np.errstate(all="ignore"):
        if np.isfinite(numbers.sum()):  # so every number is
            return
    wrong = ~np.isfinite(numbers) & read
    if wrong.any():
        number = numbers[wrong][0]
        check_none(wrong, f"{role} is {'NaN' if np.isnan(number) else f'{number}; expected a finite number'}")


def check_none(wrong: Array, fault: str, *advice: str) -> None:
    """Raise the error of the first row in which something is wrong."""
    if (found := _first(wrong, fault, *advice)) is not None:
        raise found


def _first(wrong: Array, fault: str, *advice: str) -> RowError | None:
    if not wrong.any():
        return None
    row, *envs = np.argwhere(wrong)[0].tolist()
    return RowError(row, ", ".join([fault + "".join(f" in env {env}" for env in envs), *advice]))
