"""What a convention gives for a rollout, and whether an output of a function is that, perhaps normalised."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import EPS, Array, GAEResult
from fastgae.estimators.discounted_returns import discounted_returns
from fastgae.estimators.gae import gae
from fastgae.estimators.n_step_returns import n_step_returns
from fastgae.estimators.reverse_scan import reverse_scan
from fastgae.estimators.upgo import upgo
from fastgae.estimators.vtrace import vtrace
from fastgae.testing.conventions import OUTPUTS, SHIFTED, Fields, call_of, expression

CLOSE = 1e-4  # relative to the largest number; other conventions differ by far more in a random rollout
FUNCTIONS = (gae, reverse_scan, discounted_returns, n_step_returns, upgo, vtrace)
FASTGAE = SimpleNamespace(**{function.__name__: function for function in FUNCTIONS})


# How an array may be normalised, in words -> of its numbers, their mean, and their std with eps.
SCALINGS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "centred {} ({env}mean 0)": lambda x, mean, std: x - mean,
    "normalised {} ({env}mean 0, {std} 1{eps})": lambda x, mean, std: (x - mean) / std,
    "{} divided by their {std}{eps}": lambda x, mean, std: x / std,
    "normalised {} ({env}mean added back, {std} 1{eps})": lambda x, mean, std: (x - mean) / std + mean,
}
CENTRED, *DIVIDED = SCALINGS


class Scaling(NamedTuple):
    """How an array was normalised."""

    how: str
    per_env: bool
    ddof: int = 0
    eps: float = 0.0

    def __call__(self, array: Array, mask: Array) -> Array:
        axis = 0 if self.per_env else None
        count = mask.sum(axis)
        mean = np.where(mask, array, 0).sum(axis, np.float64) / count
        variance = np.where(mask, (array - mean) ** 2, 0).sum(axis) / (count - self.ddof)
        # Nobody agrees on what 0 / 0 is, nor on an eps, which counts where numbers are nearly equal.
        variance = np.where(variance > 1e-3 * mean**2, variance, np.nan)
        return SCALINGS[self.how](array, mean, np.sqrt(variance) + self.eps)


class Output(NamedTuple):
    """What an output of a function is: one of ``OUTPUTS``, and how it was normalised."""

    base: str
    scaling: Scaling | None = None

    def words(self, each_env: bool) -> str:
        if self.scaling is None or self.base in SHIFTED:
            return self.base
        how, per_env, ddof, eps = self.scaling
        words = {"env": "per env, " * (per_env and not each_env), "eps": f", eps {eps:g}" * (eps != EPS)}
        return how.format(self.base, std="Bessel's std" if ddof else "std", **words)


class Results:
    """What a convention gives for a rollout. It raises a ValueError if no call of fastgae has this convention."""

    def __init__(self, fields: Fields, names: dict[str, Any]) -> None:
        if not (text := call_of(fields)):
            raise ValueError("no call has this convention")
        self.fields, self.names, self.mask = fields, names, names["mask"]
        call, values = evaluated(text, names), evaluated(expression(fields, "{v}"), names)
        self.rows = len(values)  # one less than there are if the last row gives nothing
        if self.rows < len(self.mask):
            values = np.concatenate([values, evaluated(expression(fields, "{last}"), names)[np.newaxis]])
        advantages = self._whole(call)
        returns = call.returns if isinstance(call, GAEResult) and len(call.returns) == len(values) else None
        self.known = {
            **names,
            "A": advantages,
            "R": advantages + values if returns is None else returns,
            "V": values,
            "of": self._of,
            "one_step": self._one_step,
        }
        self._bases: dict[str, Array] = {}

    def _whole(self, result: Any) -> Array:
        advantages = result.advantages if isinstance(result, GAEResult) else result
        missing = [(0, len(self.mask) - len(advantages)), (0, 0)]
        return np.pad(advantages, missing) if missing[0][1] else advantages

    def _of(self, gae_lambda: float) -> Array:
        return self._whole(evaluated(call_of(self.fields), {**self.names, "gae_lambda": gae_lambda}))

    def _one_step(self, targets: Array) -> Array:
        if "{n}" not in self.fields["delta"]:
            return np.full_like(targets, np.nan)  # without a bootstrap, it would be the TD error
        last = evaluated(expression(self.fields, "{last}"), self.names)
        following = {"following": np.concatenate([targets[1 : self.rows], last[np.newaxis]])}
        return self._whole(evaluated(expression({**self.fields, "n": "following"}, "{delta}"), self.names | following))

    def _base(self, name: str) -> Array:
        """Return one of ``OUTPUTS``."""
        if name not in self._bases:
            self._bases[name] = evaluated(OUTPUTS[name], self.known)
        return self._bases[name]

    def __call__(self, output: Output, rows: int) -> Array:
        """Return the first rows of an output as the function should return them, and normalise those alone."""
        array = self._base(output.base)[:rows]
        if output.scaling is not None:
            array = output.scaling(array, self.mask[:rows])
        return array + SHIFTED[output.base] * self.known["V"][:rows] if output.base in SHIFTED else array

    def explain(self, arrays: dict[str, Array], bases: tuple[str, ...]) -> dict[str, Output]:
        """Return which of these outputs each array is, and leave out what is none of them."""
        found = {}
        for name, got in arrays.items():
            mask = self.mask[: len(got)]
            if len(got) < self.rows:
                continue
            plain = (Output(base) for base in bases if base not in SHIFTED)
            same = (each for each in plain if close(got, self(each, len(got)), mask))
            first = mask[:, 0].nonzero()[0][:3].tolist()
            scaled = filter(None, (self._scaled(got, base, mask, first) for base in bases))
            if output := next(itertools.chain(same, scaled), None):
                found[name] = output
        return found

    def _scaled(self, got: Array, base: str, mask: Array, first: list[int]) -> Output | None:
        """Return the output if the array is ``base``, normalised. ``first`` has the first three steps of env 0."""
        if base in SHIFTED:
            got = got - SHIFTED[base] * self.known["V"][: len(got)]
        right = self._base(base)[: len(got)]
        if not _on_a_line([right.item(t, 0) for t in first], [got.item(t, 0) for t in first]):
            return None
        scalings = (each for per_env in (False, True) for each in _scalings(right, got, mask, per_env))
        return next((Output(base, each) for each in scalings if close(got, each(right, mask), mask)), None)


def _scalings(right: Array, got: Array, mask: Array, per_env: bool) -> Iterator[Scaling]:
    """Yield the normalisations of an array that may give the other one: the slope between them tells the eps."""
    here = mask & (np.arange(mask.shape[1]) == 0) if per_env else mask
    x, y = (array[here] - array[here].mean(dtype=np.float64) for array in (right, got))
    slope = (x @ y) / (x @ x)
    if not slope > 0.0 or np.abs(y - slope * x).max() > CLOSE * np.abs(y).max():
        return
    yield Scaling(CENTRED, per_env)
    for ddof, how in itertools.product((0, 1), DIVIDED):
        eps = 1.0 / slope - x.std(ddof=ddof)
        written = 10.0 ** np.round(np.log10(max(eps, 1e-12)))  # as people write it
        yield Scaling(how, per_env, ddof, EPS if written < 3e-6 else float(written))


def _on_a_line(x: list[float], y: list[float]) -> bool:
    """Return whether the first three points may lie on one line, which is quick and nearly always False."""
    one, other = (y[1] - y[0]) * (x[2] - x[0]), (y[2] - y[0]) * (x[1] - x[0])
    return abs(one - other) <= 1e-3 * (abs(one) + abs(other)) < math.inf  # of numbers that are not finite, never


def close(got: Array, expected: Array, mask: Array) -> bool:
    """Return whether two arrays agree in the mask. Most do not agree at the first step, which exists in each env."""
    one, other = got.item(0), expected.item(0)
    if not abs(one - other) <= 1e-3 * max(1.0, abs(other)):
        return False
    return relative(got[mask], expected[mask]) <= CLOSE


def relative(got: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest number, or infinity if one is not finite."""
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return float("inf")
    largest = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(got.astype(np.float64) - expected).max(initial=0.0)) / (largest or 1.0)


def evaluated(text: str, names: dict[str, Any]) -> Any:
    """Evaluate an expression of ``conventions``."""
    return eval(_compiled(text), names)


_compiled = functools.lru_cache(2**14)(functools.partial(compile, filename="fastgae.testing.conventions", mode="eval"))
