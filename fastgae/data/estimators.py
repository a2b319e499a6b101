"""The estimators for recorded data, and the numbers that each of them carries from run to run.

Rows are computed in runs, from the last run to the first. The numbers that a run needs from the rows after it are
carried over, and JSON keeps them bit for bit. So the results are the same as from one call of the estimator on all
rows:

    gae                   the value and the advantage of the next row
    discounted_returns    the return of the next row, which is ``last_values``
    n_step_returns        the next n rows themselves, or those up to the end of the episode; their results are dropped
"""

from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fastgae
from fastgae._call import Array, GAEResult, working_dtype
from fastgae._canonical.arguments import integer_of, shown
from fastgae._canonical.frame import as_unit_interval
from fastgae._typing import BackendName
from fastgae.data.errors import argument

GAE_LAMBDA = 0.95

# The numbers that the rows before a run need from it, by argument name: one number, or a list with one for each env.
Carried: TypeAlias = Mapping[str, Any]


class How(NamedTuple):
    """What to compute."""

    estimator: str
    gamma: float
    options: Mapping[str, Any]  # the arguments that not every estimator has
    ends: str | None = None  # "terminated": the last row of every episode ends it for good
    normalize: str | None = None  # "global"
    label_quantile: float | None = None
    label_per: str | None = None  # a column, over each item of which the quantile is taken
    backend: BackendName | None = None
    num_threads: int | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """Return everything that affects the results."""
        asked = self._asdict()
        del asked["backend"], asked["num_threads"]
        return {**asked.pop("options"), **asked}

    @property
    def passed(self) -> dict[str, Any]:
        """Return the arguments of the estimator that are no arrays."""
        return {"gamma": self.gamma, **self.options, "backend": self.backend, "num_threads": self.num_threads}


class Rows(NamedTuple):
    """Checked rows, in the words of ``fastgae.gae``. The last row of each episode is terminated or truncated."""

    rewards: Array
    values: Any  # an array, or None
    terminated: Array
    truncated: Array
    next_values: Array | None  # V' of every row
    final_values: Any  # V' of each truncated row, where next_values is None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the results. Every estimator has the dtype of ``gae``."""
        numbers = (self.rewards, self.values, self.next_values, self.final_values)
        return working_dtype(*(array.dtype for array in numbers if array is not None))


class Estimator(NamedTuple):
    """One estimator: how it computes a run of rows, and which arguments and columns it reads."""

    # Returns the results, whose advantages are None without values, and the numbers that the rows before need. The
    # second argument is None if the last row ends every episode.
    compute: Callable[[Rows, Carried | None, How], tuple[GAEResult[Any], Carried]]
    options: Collection[str] = ()  # "gae_lambda", "n"
    every_value: bool = True  # reads V and V' of every row; otherwise only V' of truncated rows


def gae_arguments(rows: Rows, carried: Carried | None) -> dict[str, Any]:
    """Return the rows, and V' after them, as arguments of ``fastgae.gae``."""
    arguments = {name: getattr(rows, name) for name in ("rewards", "values", "terminated", "truncated")}
    if rows.next_values is not None:
        return {**arguments, "next_values": rows.next_values}
    last = np.zeros_like(rows.values[0]) if carried is None else np.asarray(carried["values"], rows.values.dtype)
    return {**arguments, "final_values": rows.final_values, "last_values": last}


def _gae(rows: Rows, carried: Carried | None, how: How) -> tuple[GAEResult[Any], Carried]:
    results = fastgae.gae(
        **gae_arguments(rows, carried),
        last_advantages=None if carried is None else np.asarray(carried["advantages"], rows.dtype),
        **how.passed,
    )
    return results, {"values": rows.values[0].tolist(), "advantages": results.advantages[0].tolist()}


def _discounted_returns(rows: Rows, carried: Carried | None, how: How) -> tuple[GAEResult[Any], Carried]:
    following = np.zeros(rows.rewards.shape[1:]) if carried is None else carried["returns"]
    returns = fastgae.discounted_returns(
        rows.rewards,
        terminated=rows.terminated,
        truncated=rows.truncated,
        last_values=np.asarray(following, rows.dtype),  # its dtype is that of the results
        final_values=rows.final_values if rows.next_values is None else rows.next_values[rows.truncated],
        **how.passed,
    )
    return _less_values(returns, rows), {"returns": returns[0].tolist()}


def _n_step_returns(rows: Rows, carried: Carried | None, how: How) -> tuple[GAEResult[Any], Carried]:
    arrays = {**rows._asdict(), "next_values": _next_values(rows, carried)}
    del arrays["final_values"]
    if carried is not None:
        for name, array in arrays.items():
            arrays[name] = np.concatenate([array, np.asarray(carried[name], array.dtype)])
    returns = fastgae.n_step_returns(**arrays, **how.passed)[: len(rows.rewards)]
    # Once an episode has ended in every env, the rows after that have no effect.
    ended: Array = arrays["terminated"] | arrays["truncated"]
    ends = np.maximum.accumulate(ended[: how.options["n"]])
    going_on = (~ends).reshape(len(ends), -1).sum(axis=1)
    needed = 1 + np.count_nonzero(going_on[:-1])
    return _less_values(returns, rows), {name: array[:needed].tolist() for name, array in arrays.items()}


def _next_values(rows: Rows, carried: Carried | None) -> Array:
    """Return V' of every row."""
    if rows.next_values is not None:
        return rows.next_values
    # Without carried rows, the last row ends the episode, and any number may stand behind it.
    following = rows.values[:1] if carried is None else np.asarray(carried["values"][:1], rows.values.dtype)
    after: Array = np.concatenate([rows.values[1:], following])
    after[rows.truncated] = rows.final_values
    return after


def _less_values(returns: Array, rows: Rows) -> GAEResult[Any]:
    """Return the returns with A = R - V, if there are values."""
    if rows.values is None:
        return GAEResult(None, returns)
    with np.errstate(all="ignore"):  # infinity is data here
        return GAEResult(np.subtract(returns, rows.values, dtype=returns.dtype), returns)


ESTIMATORS = {
    "gae": Estimator(_gae, ("gae_lambda",)),
    "discounted_returns": Estimator(_discounted_returns, every_value=False),
    "n_step_returns": Estimator(_n_step_returns, ("n",)),
}


def checked_how(
    estimator: str,
    gamma: float,
    gae_lambda: float | None,
    n: int | None,
    ends: str | None,
    backend: BackendName | None,
    num_threads: int | None,
    normalize: str | None = None,
    label_quantile: float | None = None,
    label_per: str | None = None,
) -> How:
    """Return what to compute, after a check of the arguments."""
    if normalize not in (None, "global"):
        raise ValueError(f'normalize must be "global" or None, got {normalize!r}')
    if label_quantile is None and label_per is not None:
        raise ValueError(f"{argument('label_per')} is for labels: pass {argument('label_quantile')} too")
    if not (label_quantile is None or (isinstance(label_quantile, Real) and 0 < label_quantile < 1)):
        raise ValueError(f"{argument('label_quantile')} must be a number between 0 and 1, got {label_quantile!r}")
    if estimator not in tuple(ESTIMATORS):
        same = '; the returns of "gae" are those of td_lambda' if estimator == "td_lambda" else ""
        expected = f"one of {', '.join(ESTIMATORS)}"
        raise ValueError(f"{argument('estimator')} must be {expected}, got {shown(estimator)}{same}")
    has = ESTIMATORS[estimator].options
    for name, given in (("gae_lambda", gae_lambda), ("n", n)):
        if given is not None and name not in has:
            others = " and ".join(other for other, known in ESTIMATORS.items() if name in known.options)
            raise ValueError(
                f"{argument(name)} is for {others}, got {shown(given)} and {argument('estimator', estimator)}"
            )
    steps = integer_of(n)
    if "n" in has and (steps is None or steps < 1):
        raise ValueError(
            f"{argument('n')} must be a positive integer with {argument('estimator', estimator)}, got {shown(n)}"
        )
    decay = GAE_LAMBDA if gae_lambda is None else float(as_unit_interval("gae_lambda", gae_lambda, _one_number))
    options = {name: option for name, option in (("gae_lambda", decay), ("n", steps)) if name in has}
    gamma = float(as_unit_interval("gamma", gamma, _one_number))
    quantile = None if label_quantile is None else float(label_quantile)
    return How(estimator, gamma, options, ends, normalize, quantile, label_per, backend, num_threads)


def _one_number(name: str, array: Array) -> None:
    if array.ndim:
        raise ValueError(f"{name} has shape {array.shape}; expected one number")


def check_advantages(how: How, has_values: bool) -> None:
    """Check that there are advantages to normalize or to label."""
    for name, given in (("normalize", how.normalize), ("label_quantile", how.label_quantile)):
        if given is not None and not has_values:
            raise ValueError(
                f"{argument(name, given)} is for advantages, and {how.estimator} computes none without values: name a "
                f"column of values, or leave {argument(name)} out"
            )
