"""Prepare a checked call for the detectors: (T, N) arrays, and how well each row fits the next one."""

import functools
import math
from typing import Any

import numpy as np

from fastgae._backends import BackendUnavailableError
from fastgae._call import NEXT_STEP, Array, Call, GAEResult
from fastgae._diagnose.report import SHOWN, Column, Places
from fastgae._engine import dispatch, run

MOST_MARKS = 4000  # in a picture


class Steps:
    """One call, in float64, time first and the environments in C order."""

    def __init__(self, given: Call, mask: Array | None) -> None:
        self.given = given
        self.mask = mask  # as given, without the reset rows that autoreset implies
        self.next_step = given.autoreset == NEXT_STEP
        self.rewards = self.matrix(given.rewards)
        self.shape: tuple[int, int] = self.rewards.shape
        self.values = self.matrix(given.values)[: len(self.rewards)]
        self.next_values = None if given.next_values is None else self.matrix(given.next_values)
        self.discounts = self.matrix(np.broadcast_to(given.gamma, given.rewards.shape))
        self.exists = self.flags(given.mask, True)  # the steps that the recursion does not skip
        self.unmasked = self.flags(mask, True)  # those that the caller did not mask, also reset rows of autoreset
        # Flags of masked steps are never read. Padding may have them in all rows.
        self.terminated, self.truncated = (
            self.flags(each) & self.unmasked for each in (given.terminated, given.truncated)
        )
        self.done = self.terminated | self.truncated
        # Whether each env is one sequence, such as the tokens of an answer: the call says so by its flags.
        self.sequences = not self.done.any() and (given.terminated is None or mask is not None)

    @functools.cached_property
    def last_values(self) -> Array:
        """Return V of the state after the last row."""
        values, last, following = self.given.values, self.given.last_values, self.given.next_values
        if last is not None:
            return np.asarray(last, np.float64).reshape(-1)
        row: Array = self.matrix(values if following is None else following)[-1]
        return row

    @functools.cached_property
    def next_row(self) -> Array:
        """Return values[t + 1], even of another episode; NaN in the last row and where either row is masked."""
        following = np.full(self.shape, np.nan)
        following[:-1] = np.where(self.unmasked[:-1] & self.unmasked[1:], self.values[1:], np.nan)
        return following

    @functools.cached_property
    def changes(self) -> Array:
        """Return how far V changes from each row to the next one."""
        changes: Array = np.abs(self.next_row - self.values)
        return changes

    @functools.cached_property
    def final_values(self) -> Array | None:
        """Return the V' that the caller passed for the truncated steps, with NaN elsewhere, or None."""
        final = self.given.final_values
        if self.given.truncated is None:
            return None
        dense = self.next_values if final is None else self.at_truncated(final, np.nan)
        return None if dense is None else np.where(self.truncated & ~self.terminated & self.exists, dense, np.nan)

    def at_truncated(self, given: Array, elsewhere: Any) -> Array:
        """Return what belongs to ``final_values`` as a matrix; 1-D, it has one entry per True of ``truncated``."""
        truncated = self.given.truncated
        if given.shape != truncated.shape:
            sparse, given = given, np.full(truncated.shape, elsewhere)
            given[truncated] = sparse
        return self.matrix(given, type(elsewhere))

    @functools.cached_property
    def tolerance(self) -> float:
        """Return the difference below which two values count as the same value, computed twice."""
        finite = self.values[self.unmasked & np.isfinite(self.values)]
        return max(1e-4 * float(finite.std()), 1e-6 * float(np.abs(finite).max())) if finite.size else np.nan

    @functools.cached_property
    def errors(self) -> Array:
        """Return |r + gamma values[t + 1] - V|, as if no episode ended; NaN where there is no next row."""
        return self.errors_along(self.next_row)

    def errors_along(self, following: Array) -> Array:
        with np.errstate(all="ignore"):
            errors: Array = np.abs(self.rewards + self.discounts * following - self.values)
        errors[~np.isfinite(errors)] = np.nan
        return errors

    @functools.cached_property
    def td_errors(self) -> Array:
        """Return r + gamma V' - V of every step, with the V' and the gates of the call."""
        return self.advantages(gae_lambda=0.0)

    @functools.cached_property
    def explained_variance(self) -> float | None:
        """Return 1 - Var(returns - values) / Var(returns), with the returns of the call; None if they do not vary."""
        computed, values = self.computed(), self.values[self.exists]
        if self.given.returns_lambda is None:
            errors = self.matrix(computed.advantages)[self.exists]  # returns - values, before returns are rounded
        else:
            errors = self.matrix(computed.returns)[self.exists] - values
        deviation = np.std(errors + values) if errors.size else 0.0
        explained = 1.0 - np.var(errors) / deviation**2 if deviation > self.noise else np.nan
        return float(explained) if np.isfinite(explained) else None

    @functools.cached_property
    def noise(self) -> float:
        """Return the standard deviation that rounding alone may give to advantages and returns."""
        eps = np.finfo(self.given.rewards.dtype).eps
        return float(8.0 * eps * np.abs(self.values[self.exists]).max(initial=0.0))

    def advantages(self, **changed: Any) -> Array:
        """Return the advantages of the call, with some arguments changed."""
        return self.matrix(self.computed(self.given._replace(**changed)).advantages)

    def flags(self, given: Array | None, default: bool = False) -> Array:
        return np.full(self.shape, default) if given is None else self.matrix(given, bool)

    def matrix(self, array: Any, dtype: Any = np.float64) -> Array:
        moved = np.moveaxis(array, self.given.time_axis, 0)
        return np.ascontiguousarray(moved.reshape(len(moved), math.prod(moved.shape[1:])), dtype)

    def places(self, where: Array) -> Places:
        """Return the places of True in a (T, N) array, or in an (N,) array of the last row."""
        if where.ndim == 1:
            where = np.concatenate([np.zeros((self.shape[0] - 1, len(where)), bool), where[np.newaxis]])
        shape, axis = self.given.rewards.shape, self.given.time_axis
        found = np.argwhere(where)
        envs = [np.unravel_index(n, shape[:axis] + shape[axis + 1 :]) for _, n in found[:SHOWN]]
        return Places(
            len(found),
            tuple((int(t), *map(int, env)) for (t, _), env in zip(found[:SHOWN], envs, strict=True)),
            tuple(np.flatnonzero(where[:, found[0][1]]).tolist()),
            tuple(map(tuple, found[:MOST_MARKS].tolist())),
        )

    def places_of_envs(self, envs: Any) -> Places:
        """Return the first rows of these envs."""
        where = np.zeros(self.shape, bool)
        where[0, envs] = True
        return self.places(where)

    def column(self, places: Places) -> Column:
        """Return the env of the first place, or the first env."""
        env = places.first[0][1:] if places.first else (0,) * (self.given.rewards.ndim - 1)
        n = places.marks[0][1] if places.marks else 0
        series = {"rewards": self.rewards, "values": self.values, "TD errors": self.td_errors}
        one = slice(n, n + 1)  # empty if there are no envs
        copies = {name: array[:, one].flatten() for name, array in series.items()}
        ends = self.terminated[:, one].flatten(), self.truncated[:, one].flatten()
        return Column(env, copies, *ends, self.shape)

    def computed(self, given: Call | None = None) -> GAEResult:
        with np.errstate(all="ignore"):
            return run.without_short_cut((given or self.given)._replace(normalize=None), dispatch.choose(_backend(), 1))


@functools.cache
def _backend() -> str:
    """Return a backend that needs no time to compile: the others give the same bits."""
    try:
        dispatch.choose("cpp", 1)
    except (BackendUnavailableError, ValueError):  # ValueError: FASTGAE_CPU names no CPU target
        return "numpy"
    return "cpp"


def episode_lengths(ends: Array, exists: Array) -> Array:
    """Return the number of steps of each episode that ends, at the row of its end, and 0 elsewhere."""
    seen = np.cumsum(exists, 0)
    lengths = np.zeros(ends.shape, np.intp)
    envs, rows = np.divmod(np.flatnonzero(ends.T), max(1, len(ends)))  # one env after the other
    counts = seen[rows, envs]
    lengths[rows, envs] = counts - np.where(np.diff(envs, prepend=-1) > 0, 0, np.roll(counts, 1))
    return lengths


def number_of(flags: Array) -> int:
    return int(np.count_nonzero(flags))


def median(numbers: Array) -> float:
    finite = numbers[np.isfinite(numbers)]
    return float(np.median(finite)) if finite.size else np.nan


def jump(numbers: Array, here: Array, there: Array) -> bool:
    """Return whether numbers are far larger in some rows than in other ones, and than usual."""
    return median(numbers[here]) > 3.0 * max(median(numbers[there]), median(numbers))


def by_chance(hits: Array, times: int) -> float:
    """Return the probability that something as frequent as True in ``hits`` happens ``times`` times in a row."""
    return float(((number_of(hits) + 1) / (hits.size + 2)) ** times)


def shifted(flags: Array, by: int) -> Array:
    """Return (T, N) flags moved ``by`` rows later, or earlier if negative; flags that leave the array are lost."""
    moved = np.zeros_like(flags)
    if by > 0:
        moved[by:] = flags[:-by]
    else:
        moved[: max(len(moved) + by, 0)] = flags[-by:]
    return moved
