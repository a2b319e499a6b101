"""Compute rows of episodes: the one computation behind files, tables and clusters.

A run of rows is computed in one call of ``fastgae.gae`` over one env, whose episodes end where those of the rows end.
An episode that goes on behind the run is carried: the value and the advantage of its next row take the place of all
that follows, with the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fastgae
from fastgae._call import Array, working_dtype

# The name of an episode: one item of each column that takes part in it.
Name: TypeAlias = tuple[Any, ...]


class RowError(ValueError):
    """A fault of one row. Who knows the row's file says where it is."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row, self.fault = row, fault


class ScatteredError(RowError):
    """The rows of an episode do not follow each other."""


class Steps(NamedTuple):
    """Rows that follow each other, as arrays of one length; or of one shape (T, N) for N envs, without names."""

    name: Callable[[int], Name]  # of the episode of a row
    changes: Array  # True where a row and the next have episodes of different names; one shorter than the others
    step: Array | None  # integers that rise by one from row to row of an episode
    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    next_values: Array | None = None  # V' of every row
    final_values: Array | None = None  # V' of the last row of an episode, read only there; NaN where there is none
    restarts: bool = True  # the steps of one name may begin again behind a flag, as those of an env do


class Following(NamedTuple):
    """What the rows before need of the first row behind them."""

    name: Name
    step: int | None
    value: float | list[float]  # a number for each env
    advantage: float | list[float]


class How(NamedTuple):
    """What to compute, in the words of ``fastgae.gae``."""

    gamma: float
    gae_lambda: float
    ends: str | None = None  # "terminated": the last row of every episode ends it for good
    backend: str | None = None
    num_threads: int | None = None


class Computed(NamedTuple):
    advantages: Array
    returns: Array
    last: Array  # True in the last row of each episode


def compute(steps: Steps, following: Following | None, how: How) -> tuple[Computed, Following]:
    """Return the results of the rows, and what the rows before them need."""
    arguments, last = checked_arguments(steps, following, how)
    carried = None
    if following is not None and not last[-1].all():
        carried = for_envs(following.advantage, working_dtype((steps.rewards.dtype, steps.values.dtype)))
    result = fastgae.gae(**arguments, last_advantages=carried, backend=how.backend, num_threads=how.num_threads)
    return Computed(result.advantages, result.returns, last), first_row(steps, result.advantages[0].tolist())


def first_row(steps: Steps, advantage: float | list[float], row: int = 0) -> Following:
    """Return what the rows before a row need of it."""
    step = None if steps.step is None else int(steps.step[row])
    return Following(steps.name(row), step, steps.values[row].tolist(), advantage)


def for_envs(number: float | list[float], dtype: np.dtype[Any]) -> float | Array:
    """Return the numbers of the envs as an array of a dtype; one number has no effect on the dtype of results."""
    return np.asarray(number, dtype) if isinstance(number, list) else number


def checked_arguments(steps: Steps, following: Following | None, how: How) -> tuple[dict[str, Any], Array]:
    """Return the arguments of ``fastgae.gae`` for the rows as one env, and where their episodes end."""
    last = last_rows(steps, following)
    check_order(steps, last, following)
    for role in ("rewards", "values"):
        check_finite(role, getattr(steps, role))
    terminated = steps.terminated | last if how.ends == "terminated" else steps.terminated
    truncated = (last | steps.truncated) & ~terminated
    arguments = {
        "rewards": steps.rewards,
        "values": steps.values,
        "terminated": terminated,
        "truncated": truncated,
        **_next_values(steps, truncated, None if last[-1].all() else following),
        "gamma": how.gamma,
        "gae_lambda": how.gae_lambda,
    }
    return arguments, last


def sampled(steps: Steps, rows: int) -> tuple[Steps, Following | None]:
    """Return the first rows, and what they need of the next one."""
    if len(steps.rewards) <= rows:
        return steps, None
    arrays: dict[str, Any] = {
        name: each[:rows] for name, each in steps._asdict().items() if isinstance(each, np.ndarray)
    }
    arrays["changes"] = steps.changes[: rows - 1]
    return steps._replace(**arrays), first_row(steps, 0.0, rows)


def last_rows(steps: Steps, following: Following | None) -> Array:
    """Return True where an episode ends: at a flag, before a row of another name, and at the end of everything."""
    last: Array = steps.terminated | steps.truncated
    last[:-1] |= steps.changes
    if following is None or steps.name(len(last) - 1) != following.name:
        last[-1] = True
    return last


def check_order(steps: Steps, last: Array, following: Following | None) -> None:
    """Check that the steps of an episode rise by one, and that a flag did not end it before its last step."""
    if steps.step is None:
        return
    before, after = steps.step[:-1], steps.step[1:]
    wrong = (after != before + 1) & ~last[:-1]
    if not steps.restarts:
        wrong |= (after <= before) & ~steps.changes
    jumps = np.flatnonzero(wrong)
    if len(jumps):
        at = int(jumps[0])
        raise ScatteredError(at, f"step {before[at]} is followed by step {after[at]}")
    if following is None or following.name != steps.name(-1) or following.step is None:
        return
    end = int(steps.step[-1])
    if (following.step != end + 1 and not last[-1]) or (following.step <= end and not steps.restarts):
        raise ScatteredError(len(last) - 1, f"step {end} is followed by step {following.step}")


def check_finite(role: str, numbers: Array, read: Array | bool = True) -> None:
    """Check that no number which is read is NaN or infinite."""
    wrong = ~np.isfinite(numbers) & read
    if wrong.any():
        number = numbers[wrong][0]
        check_none(wrong, f"{role} is {'NaN' if np.isnan(number) else f'{number}; expected a finite number'}")


def check_none(wrong: Array, fault: str) -> None:
    """Raise the error of the first row in which something is wrong."""
    places = np.argwhere(wrong)
    if len(places):
        row, *envs = places[0].tolist()
        raise RowError(row, fault + "".join(f" in env {env}" for env in envs))


def _next_values(steps: Steps, truncated: Array, goes_on: Following | None) -> dict[str, Any]:
    """Return the arguments of gae that say V' of the last row of an episode that does not end for good."""
    if steps.next_values is not None:
        check_finite("next_values", steps.next_values, ~steps.terminated)
        return {"next_values": steps.next_values}
    final = steps.final_values
    unknown = truncated if final is None else truncated & np.isnan(final)
    for flagged, how in ((steps.truncated, "is truncated"), (True, "ends without a flag")):
        check_none(
            unknown & flagged,
            f"the episode {how}, and there is no value of the state after it: name a column of next_values, or say "
            'ends="terminated" if every episode ends for good',
        )
    return {
        # Without any, of no dtype that could decide on the results'.
        "final_values": steps.values[:0].reshape(-1) if final is None else final[truncated],
        "last_values": (
            np.zeros_like(steps.values[0]) if goes_on is None else for_envs(goes_on.value, steps.values.dtype)
        ),
    }
