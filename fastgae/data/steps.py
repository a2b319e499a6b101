"""Compute rows of episodes: files, tables and clusters all use this computation.

A run of rows is computed in one call of an estimator over one env, whose episodes end where the episodes of the rows
end. If an episode goes on after the run, a few numbers are carried over from its next row. ``estimators.py`` says
which; they replace all later rows, with the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastgae._call import Array
from fastgae.data.errors import argument
from fastgae.data.estimators import ESTIMATORS, Carried, How, Rows
from fastgae.data.success import Success

BLOCK = 65_536

# The name of an episode: one item of each column that takes part in it.
Name: TypeAlias = tuple[Any, ...]


class RowError(ValueError):
    """A fault of one row. Code that knows the row's file adds the place to the message."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row, self.fault = row, fault


class ScatteredError(RowError):
    """The rows of an episode do not follow each other."""


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
    may_be_cut: bool = False  # there may be more rows elsewhere, so that a flag must tell the end of an episode


class Following(NamedTuple):
    """The numbers that a run of rows needs from the first row after it."""

    name: Name
    step: int | None
    carried: Carried
    file: int = 0  # its number in the source, where ``Files`` checks it


class Computed(NamedTuple):
    advantages: Array | None  # None without values
    returns: Array
    last: Array  # True in the last row of each episode


def compute_run(steps: RecordedSteps, following: Following | None, how: How) -> tuple[Computed, Following]:
    """Return the results of the rows, and the numbers that the rows before them need."""
    rows, last = checked_rows(steps, following, how)
    results, before = ESTIMATORS[how.estimator].compute(rows, carried_into(last, following), how)
    return Computed(results.advantages, results.returns, last), at_row(steps, 0, before)


def at_row(steps: RecordedSteps, row: int, carried: Carried) -> Following:
    """Return the numbers that the rows before a row need from it."""
    return Following(steps.name(row), None if steps.step is None else int(steps.step[row]), carried)


def carried_into(last: Array, following: Following | None) -> Carried | None:
    """Return the numbers carried from the next row; None if the episode of every env ends before it."""
    return None if following is None or last[-1].all() else following.carried


def checked_rows(steps: RecordedSteps, following: Following | None, how: How) -> tuple[Rows, Array]:
    """Return the rows as one env, and where their episodes end."""
    last = last_rows(steps, following)
    check_order(steps, last, following)
    rewards = steps.rewards if steps.success is None else steps.success.rewards(steps.rewards, last)
    check_finite("rewards", rewards)
    if steps.values is not None:
        check_finite("values", steps.values)
    terminated = steps.terminated | last if how.ends == "terminated" else steps.terminated
    truncated = last & ~terminated
    if steps.may_be_cut and how.ends is None:
        check_none(
            last & ~(steps.terminated | steps.truncated),
            "the episode ends without a flag, so the rest of it may be in another table: bring all its rows into one. "
            'If this is its last row, set truncated here, or say ends="terminated" if every episode ends for good',
        )
    if steps.next_values is None:
        final = _final_values(steps, truncated)
    else:
        final, read = None, ~terminated if ESTIMATORS[how.estimator].every_value else truncated
        check_finite("next_values", steps.next_values, read)
    return Rows(rewards, steps.values, terminated, truncated, steps.next_values, final), last


def sampled(steps: RecordedSteps, rows: int) -> tuple[RecordedSteps, Following | None]:
    """Return the first rows, and the numbers that ``gae`` needs from the next row."""
    if steps.values is None or len(steps.rewards) <= rows:
        return steps, None
    return first_steps(steps, rows), at_row(steps, rows, {"values": steps.values[rows].tolist()})


def first_steps(steps: RecordedSteps, rows: int) -> RecordedSteps:
    """Return the first rows."""
    arrays: dict[str, Any] = {
        name: each[:rows] for name, each in steps._asdict().items() if isinstance(each, np.ndarray)
    }
    arrays["changes"] = steps.changes[: rows - 1]
    return steps._replace(**arrays)


def last_rows(steps: RecordedSteps, following: Following | None) -> Array:
    """Return True where an episode ends: at a flag, before a row of another name, and at the end of everything."""
    last: Array = steps.terminated | steps.truncated
    last[:-1] |= steps.changes
    if following is None or steps.name(len(last) - 1) != following.name:
        last[-1] = True
    return last


def check_order(steps: RecordedSteps, last: Array, following: Following | None) -> None:
    """Check that the steps of an episode rise by one, and that a flag did not end it before its last step."""
    if steps.step is None:
        return
    jumps = _jumps(steps.step)
    before, after = steps.step[jumps], steps.step[jumps + 1]
    wrong = ~last[jumps]
    if not steps.restarts:
        wrong |= (after <= before) & ~steps.changes[jumps]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ScatteredError(int(jumps[at]), f"step {before[at]} is followed by step {after[at]}")
    if following is None or following.name != steps.name(len(last) - 1) or following.step is None:
        return
    end = int(steps.step[-1])
    if (following.step != end + 1 and not last[-1]) or (following.step <= end and not steps.restarts):
        raise ScatteredError(len(last) - 1, f"step {end} is followed by step {following.step}")


def _jumps(step: Array) -> Array:
    """Return the rows whose step does not rise by one to the next. They are few, and a block stays in the cache."""
    firsts = range(0, len(step), BLOCK)
    return np.concatenate([first + np.flatnonzero(np.diff(step[first : first + BLOCK + 1]) != 1) for first in firsts])


def check_finite(role: str, numbers: Array, read: Array | bool = True) -> None:
    """Check that no number which is read is NaN or infinite."""
    with np.errstate(all="ignore"):
        if np.isfinite(numbers.sum()):  # so every number is
            return
    wrong = ~np.isfinite(numbers) & read
    if wrong.any():
        number = numbers[wrong][0]
        check_none(wrong, f"{role} is {'NaN' if np.isnan(number) else f'{number}; expected a finite number'}")


def check_none(wrong: Array, fault: str) -> None:
    """Raise the error of the first row in which something is wrong."""
    if wrong.any():
        row, *envs = np.argwhere(wrong)[0].tolist()
        raise RowError(row, fault + "".join(f" in env {env}" for env in envs))


def _final_values(steps: RecordedSteps, truncated: Array) -> Array:
    """Return V' of each row in which an episode ends, but not for good."""
    final = steps.final_values
    unknown = truncated if final is None else truncated & np.isnan(final)
    if unknown.any():
        flagged = unknown & steps.truncated
        how = "is truncated" if flagged.any() else "ends without a flag"
        check_none(
            flagged if flagged.any() else unknown,
            f"the episode {how}, and there is no value of the state after it: name a column of next_values, or say "
            f"{argument('ends', 'terminated')} if every episode ends for good",
        )
    # If there are none, an empty array with a dtype that does not change the dtype of the results.
    none: Array = (steps.rewards if steps.values is None else steps.values)[:0].reshape(-1)
    return none if final is None else final[truncated]
