"""Say in words which convention a function computes, and what is wrong in it."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from fastgae._call import EPS, Array, GAEResult
from fastgae._diagnose.report import SHOWN, Finding, Places, wrapped
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan
from fastgae.testing.conventions import (
    DEFAULTS,
    NOTHING,
    ODD,
    OUTPUTS,
    Choice,
    Fields,
    call_of,
    conventions,
    expression,
)
from fastgae.testing.rollouts import (
    ENDS,
    NOTES,
    Outputs,
    Probe,
    Style,
    called,
    random_rollout,
    roles_of,
    styles,
    tiny_rollouts,
)

CLOSE = 1e-4  # relative to the largest number; other conventions differ by far more in a random rollout
MOST_CHOICES = 2
FASTGAE = SimpleNamespace(gae=gae, reverse_scan=reverse_scan)
# The output that is meant, where one is a mistake.
RIGHT_OUTPUTS = {"returns of normalised advantages": "returns"}


@dataclass(frozen=True)
class Identified:
    """What a function computes. ``str`` gives the report for people.

    Attributes
    ----------
    function : str
        Its name.
    arguments : str
        What its arguments are, and how they were passed.
    outputs : dict
        What each of its outputs is, in words.
    convention : tuple of str
        What it does that other loops do otherwise, in words. Empty if the convention is unknown.
    call : str
        The call of fastgae that gives the same advantages, with arrays of shape (T, N). Empty if it is unknown.
    error : float
        The largest difference from that call, relative to the largest number; 0.0: the same bits.
    findings : tuple of Finding
        What is wrong in it. The detector of each is the name of the mistake.
    smallest : str
        The smallest rollout that shows it, with the results.
    """

    function: str
    arguments: str
    outputs: dict[str, str]
    convention: tuple[str, ...]
    call: str
    error: float
    findings: tuple[Finding, ...]
    smallest: str

    @property
    def known(self) -> bool:
        """Whether fastgae knows the convention."""
        return bool(self.call)

    def __str__(self) -> str:
        unknown = f"unknown: none that fastgae knows, also not with up to {MOST_CHOICES} of the mistakes that it knows"
        same = "the same bits as this call" if self.error == 0 else f"within {self.error:.0e} of this call, relatively"
        lines = {
            "arguments": self.arguments,
            "outputs": ", ".join(f"{name}: {words}" for name, words in self.outputs.items()),
            "convention": "; ".join(self.convention) or unknown,
            "call": self.call,
            "exactness": same if self.known else "",
        }
        heading = f"{self.function}: {len(self.findings) or 'no'} finding{'s' * (len(self.findings) != 1)}"
        if not self.known:
            heading += ", and an unknown convention"
        about = "\n".join(wrapped(f"  {name:<12}", text, 14) for name, text in lines.items() if text)
        return "\n\n".join(part for part in (heading, about, *map(str, self.findings), self.smallest) if part)


def identify(
    function: Callable[..., Any],
    *,
    names: Mapping[str, str | None] | None = None,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> Identified:
    """Call a function that computes advantages on small rollouts, and say which convention it computes.

    Parameters
    ----------
    function : callable
        It takes arrays of NumPy, torch or JAX by name, and returns advantages, returns, or both, as arrays, in a tuple
        or in a dict. Shapes (T, N), (N, T), (T,) and these with an axis of length 1 are tried, and flags as bool and as
        numbers. torch and JAX are tried if they are imported. Wrap anything else in a lambda.
    names : dict, optional
        What an argument is, if its name does not say so: {"d": "terminated"}. None leaves an argument at its default.
        ``fastgae.testing.ROLES`` has all names that are understood, with what they mean: "done" is a flag of both ends
        of an episode, "starts" is the flag of an observation that begins an episode, "next_done" is the flag after the
        last step, "going_on" is 1 - done, and "discounts" is gamma (1 - done). The others are arguments of ``gae``.
    gamma, gae_lambda : float
        Passed to the function if it has such arguments. If not, they are what it has built in; if the function does
        something else then, they are measured.

    Returns
    -------
    Identified
        The convention, the call of fastgae that gives the same, and findings: what is wrong in the function.

    Raises
    ------
    TypeError, ValueError
        An argument of the function is unknown, or the function cannot be called, or it returns no arrays of the shape
        of the rewards.
    """
    subject = Subject(function, roles_of(function, names), (gamma, gae_lambda))
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # of numbers that are not finite
        ran = list(subject.ways())
        match = subject.match(ran)
        if match is None and not {"gamma", "gae_lambda"} & subject.given and (found := subject.measured(ran[0][0])):
            measured = replace(subject, coefficients=found)
            if match := measured.match(ran):
                subject = measured
        return subject.report(match or subject.nearest(*ran[0]), known=match is not None)


def assert_gae(
    function: Callable[..., Any],
    *,
    names: Mapping[str, str | None] | None = None,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    allow: tuple[str, ...] = (),
    tolerance: float = 1e-5,
) -> None:
    """Raise an AssertionError with the report of ``identify`` if a function does not compute GAE, or has a mistake.

    Parameters
    ----------
    function, names, gamma, gae_lambda
        As in ``identify``.
    allow : tuple of str
        Names of findings that are meant, such as ("truncation_as_termination",).
    tolerance : float
        The largest difference from fastgae's results, relative to the largest number. 0.0: the same bits.
    """
    found = identify(function, names=names, gamma=gamma, gae_lambda=gae_lambda)
    wrong = {finding.detector for finding in found.findings} - {*allow}
    if wrong or not found.known or found.error > tolerance:
        raise AssertionError(str(found))


class Match(NamedTuple):
    """A convention, and what the outputs of the function are in it."""

    style: Style
    choices: tuple[Choice, ...]
    fields: Fields
    outputs: dict[str, str]


@dataclass(frozen=True)
class Subject:
    """A function, what its arguments are, and gamma and gae_lambda."""

    function: Callable[..., Any]
    roles: dict[str, str]
    coefficients: tuple[float, float]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def given(self) -> set[str]:
        return set(self.roles.values())

    @property
    def ends(self) -> int:
        """In how many ways an episode may end."""
        if "truncated" in self.given or {"terminated", "done"} <= self.given:
            return 2
        return int(bool(self.given & ENDS))

    @property
    def built_in(self) -> dict[str, float]:
        """The coefficients that the function does not take."""
        both = dict(zip(("gamma", "gae_lambda"), self.coefficients, strict=True))
        return {name: number for name, number in both.items() if name not in self.given}

    def random(self, seed: int, steps: int = 7) -> Probe:
        return random_rollout(seed, steps, 3, self.ends, "mask" in self.given, self.coefficients)

    def called(self, style: Style, rollout: Probe) -> Outputs:
        return called(self.function, self.roles, style, rollout)

    def ways(self) -> Iterator[tuple[Style, Outputs]]:
        """Yield the ways to pass a rollout that the function takes, and what it returned."""
        first: Exception | None = None
        ran, seen = False, set()
        for style in styles(self.roles):
            try:
                outputs = self.called(style, self.random(0))
            except Exception as error:  # a function may raise anything if arrays are not as it expects
                first = first or error
                continue
            ran = ran or bool(outputs.arrays)
            same = (style.longer, *(array.tobytes() for array in outputs.arrays.values()))
            if outputs.arrays and same not in seen:
                seen.add(same)
                yield style, outputs
        if not ran and first:
            raise TypeError(
                f"{self.name} raised an error however the arrays were passed: for NumPy arrays of shape (T, N), "
                f"{type(first).__name__}: {first}. If it takes tensors, import their library first; if two "
                "arguments exclude each other, leave one out with names={...: None}"
            ) from first
        if not ran:
            raise TypeError(f"{self.name} returned no floats of the shape of rewards: pass a lambda that returns them")

    def right(self, longer: bool) -> Fields:
        """Return the right convention for these arguments."""
        fields = dict(DEFAULTS)
        if self.ends < 2:
            fields |= {"e": "terminated" if self.ends else "no_flags", "either": "{e}", "c": "{e}"}
        if longer:
            fields |= {"v": "values[:-1]", "last": "values[-1]"}
        elif "last_values" not in self.given:
            fields["last"] = "next_values[-1]" if "next_values" in self.given else NOTHING
        if "next_values" in self.given:
            fields["n"] = "next_values"
        elif self.ends == 2:
            fields["n"] = "np.where({u}, final_values, {following})"
        if "mask" in self.given:
            fields["settings"] = ", mask=mask"
        return fields

    def match(self, ran: list[tuple[Style, Outputs]]) -> Match | None:
        """Return the convention with the fewest choices that explains all outputs, or else some of them."""
        partial = None
        for count in range(MOST_CHOICES + 1):
            for style, outputs in ran:
                has = {"e": self.ends > 0, "u": self.ends > 1, "mask": "mask" in self.given}
                has["last"] = style.longer or "last_values" in self.given
                given = {name for name, holds in has.items() if holds}
                names = names_of(self.random(0), style.longer)
                possible = {name: _possible(array, names["mask"]) for name, array in outputs.arrays.items()}
                for choices, fields in conventions(self.right(style.longer), given, count):
                    match = Match(style, choices, fields, _explained(fields, names, outputs.arrays, possible))
                    if set(match.outputs.values()) - {"values"} and self.error(match) <= CLOSE:
                        if len(match.outputs) == len(outputs.arrays):
                            return match
                        partial = partial or match
        return partial

    def nearest(self, style: Style, outputs: Outputs) -> Match:
        """Return the right convention, with each output as the nearer of advantages and returns."""
        fields = self.right(style.longer)
        if self.ends == 2 and not self.given & {"final_values", "next_values"}:
            fields["n"] = "np.where({u}, {v}, {following})"  # the best that it can do
        right = results(fields, names_of(self.random(0), style.longer))
        words = {
            name: min(("advantages", "returns"), key=lambda each: np.abs(right(each) - array).sum())
            for name, array in outputs.arrays.items()
        }
        return Match(style, (), fields, words)

    def measured(self, style: Style) -> tuple[float, float] | None:
        """Return gamma and gae_lambda as the weights of the second reward and value in the first result."""
        blank = self.random(0).map(np.zeros_like)
        blank = blank._replace(mask=~blank.mask)
        found = []
        for name in ("rewards", "values"):
            numbers = getattr(blank, name).copy()
            numbers[1] = 1.0
            arrays = self.called(style, blank._replace(**{name: numbers})).arrays
            found.append(float(next(iter(arrays.values()))[0, 0]))
        decay, gamma = found[0], found[0] + found[1]
        return (round(gamma, 6), round(decay / gamma, 6)) if 0 < decay <= gamma <= 1 else None

    def report(self, match: Match, known: bool) -> Identified:
        """Say what was found in words."""
        style, choices, fields, outputs = match
        right = self.right(style.longer) if known else fields
        for choice in choices:
            right |= {name: fields[name] for name in choice.fields if not choice.why}
        wrong_output = any(OUTPUTS[words].why for words in outputs.values())
        wrong_convention = any(choice.why for choice in choices) or not known
        smallest, places = self.smallest(match, right) if wrong_convention or wrong_output else ("", Places())
        wrong = [Finding(each.words, places, each.why, each.change, each.name) for each in choices if each.why]
        wrong += self.odd(match, known)
        call = call_of(fields) if known else ""
        for name, number in self.built_in.items():
            call = call.replace(f"{name}={name}", f"{name}={number}")
        time_second = call.startswith("fastgae.gae") and "[" not in call and style.layout.words.startswith("(N")
        return Identified(
            self.name,
            self.about(style),
            outputs if known else {},
            (tuple(each.words for each in choices) or (self.plain(),)) if known else (),
            f"{call[:-1]}, time_axis=1)" if time_second else call,
            self.error(match) if known else float("nan"),
            tuple(wrong),
            smallest,
        )

    def plain(self) -> str:
        """Return the words for a convention without any choice."""
        flags = (
            "no flags: each env is one sequence",
            "the flag of a step cuts its bootstrap and its trace",
            "terminated cuts the bootstrap, either end cuts the trace, and truncated steps bootstrap from final values",
        )
        return flags[self.ends] + ("; a masked step is skipped, as if it were cut out" if "mask" in self.given else "")

    def about(self, style: Style) -> str:
        """Return the words for the arguments."""
        passed = ", ".join(name if name == role else f"{name} ({role})" for name, role in self.roles.items())
        notes = [f"; {NOTES[role].format(name)}" for name, role in self.roles.items() if role in NOTES]
        rows = ", values with T + 1 rows" * style.longer
        flags = f", flags as {style.flags}" * bool(self.ends)
        return f"{passed}{''.join(notes)}; passed as {style.library} arrays of shape {style.layout.words}{rows}{flags}"

    def beside(
        self, style: Style, fields: Fields, outputs: dict[str, str], rollout: Probe
    ) -> Iterator[tuple[str, Array, Array]]:
        """Yield each output of a call, and what it is in a convention, if that is finite."""
        try:
            arrays = self.called(style, rollout).arrays
        except Exception:  # such as a single step, which some functions refuse
            return
        right = results(fields, names_of(rollout, style.longer))
        for name, words in outputs.items():
            expected = right(words)[rollout.mask]
            if np.isfinite(expected).all():
                yield name, arrays[name][rollout.mask], expected

    def error(self, match: Match) -> float:
        """Return the largest difference from the call in some random rollouts; 0 only for the same bits."""
        worst = 0.0
        for seed, steps in enumerate((1, 2, 7, 7, 50)):
            rollout = self.random(seed, steps)
            for _, got, expected in self.beside(match.style, match.fields, match.outputs, rollout):
                if got.dtype != expected.dtype or got.tobytes() != expected.tobytes():
                    worst = max(worst, _relative(got, expected), float(np.finfo(np.float32).tiny))
        return worst

    def odd(self, match: Match, known: bool) -> list[Finding]:
        """Return findings that are no part of a convention."""
        rollout = self.random(0)
        once, again = (self.called(match.style, rollout) for _ in range(2))
        outputs = match.outputs if known else {}
        both = rollout._replace(truncated=rollout.truncated | rollout.terminated)
        can_tell = {"terminated", "truncated"} <= self.given
        beside = self.beside(match.style, match.fields, outputs, both) if can_tell else ()
        found = {
            "inputs_written": once.written,
            "not_deterministic": [
                name for name, a in once.arrays.items() if a.tobytes() != again.arrays[name].tobytes()
            ],
            "not_finite": [name for name, array in once.arrays.items() if not np.isfinite(array).all()],
            "output_unknown": [name for name in once.arrays if known and name not in outputs],
            "outputs_equal": {words for words in outputs.values() if [*outputs.values()].count(words) > 1},
            "both_flags": [name for name, got, expected in beside if _relative(got, expected) > CLOSE],
        }
        wrong = [
            Finding(f"{name} is {words}", Places(), output.why, output.change, words.replace(" ", "_"))
            for name, words in outputs.items()
            if (output := OUTPUTS[words]).why
        ]
        for name, names in found.items():
            if names:
                what, why, change = ODD[name]
                wrong.append(Finding(what.format(", ".join(names)), Places(), why, change, name))
        return wrong

    def smallest(self, match: Match, right: Fields) -> tuple[str, Places]:
        """Return the smallest rollout in which the function differs from the right call, and where it differs."""
        style = match.style
        outputs = {name: RIGHT_OUTPUTS.get(words, words) for name, words in match.outputs.items()}

        def different(rollout: Probe) -> tuple[str, Array, Array] | None:
            beside = self.beside(style, right, outputs, rollout)
            return next((each for each in beside if _relative(*each[1:]) > CLOSE), None)

        shown = next(filter(different, tiny_rollouts(self.ends, self.coefficients)), None)
        if shown is None:
            return "", Places()
        for field in ("rewards", "values", "final_values"):
            for row, number in itertools.product(range(len(getattr(shown, field))), (1.0, 0.0)):
                array = getattr(shown, field).copy()
                array[row] = number
                if different(shorter := shown._replace(**{field: array})):
                    shown = shorter
        name, got, expected = different(shown) or ("", shown.rewards, shown.rewards)
        at = [(int(t),) for t in np.flatnonzero(~np.isclose(got, expected, rtol=CLOSE))]
        passed = shown.arguments()
        call = call_of(right)
        if style.longer:
            passed["values"] = passed["longer_values"]
        lines = [f"  {argument} = {_listed(passed[role])}" for argument, role in self.roles.items()]
        if "final_values" in call and "final_values" not in self.given:
            lines.append(f"  final_values = {_listed(passed['final_values'])}, for which {self.name} has no argument")
        wide = max(len(self.name), len("fastgae"))
        return "\n".join(
            [
                f"The smallest rollout in which {self.name} and fastgae differ:",
                "",
                *lines,
                "",
                f"  {outputs[name]} of {self.name:<{wide}}  {_listed(got)}",
                f"  {outputs[name]} of {'fastgae':<{wide}}  {_listed(expected)}",
                "",
                wrapped("  fastgae ", f"is {call}", 10),
            ]
        ), Places(len(at), tuple(at[:SHOWN]))


def names_of(rollout: Probe, longer: bool) -> dict[str, Any]:
    """Return the names that the expressions of conventions use."""
    names = rollout.arguments()
    return {
        **names,
        "values": names["longer_values" if longer else "values"],
        "no_flags": rollout.terminated & False,
        "np": np,
        "fastgae": FASTGAE,
    }


def results(fields: Fields, names: dict[str, Any]) -> Callable[[str], Array]:
    """Return a function that gives an output of a convention by its words."""
    call, mask = call_of(fields), names["mask"]
    values = evaluated(expression(fields, "{v}"), names)
    advantages = evaluated(call, names)

    def to_go() -> Array:
        return evaluated(call, {**names, "gae_lambda": 1.0}) + values

    def one_step(targets: Array) -> Array:
        if "{n}" not in fields["delta"]:
            return np.full_like(targets, np.nan)  # without a bootstrap, it would be the TD error
        last = evaluated(expression(fields, "{last}"), names)
        following = np.concatenate([targets[1:], last[np.newaxis]])
        return evaluated(expression({**fields, "n": "following"}, "{delta}"), {**names, "following": following})

    known = {
        **names,
        "normalised": functools.partial(_normalised, mask),
        "A": advantages,
        "V": values,
        "to_go": to_go,
        "one_step": one_step,
    }
    return lambda words: evaluated(OUTPUTS[words].expression, known)


def _normalised(mask: Array, array: Array, ddof: int = 0, axis: int | None = None) -> Array:
    count = mask.sum(axis)
    shifted = array - np.where(mask, array, 0).sum(axis, np.float64) / count
    variance = np.where(mask, shifted**2, 0).sum(axis) / (count - ddof)
    return cast(Array, shifted / (np.sqrt(variance) + EPS))


def evaluated(text: str, names: dict[str, Any]) -> Array:
    """Evaluate an expression of ``conventions``."""
    result: Any = eval(_compiled(text), names)
    return cast(Array, result.advantages if isinstance(result, GAEResult) else result)


@functools.lru_cache(4096)
def _compiled(text: str) -> Any:
    return compile(text, "fastgae.testing.conventions", "eval")


def _possible(array: Array, mask: Array) -> list[str]:
    """Return the words that an array can have in any convention. Normalising a normalised array changes nothing."""
    known = {"A": array, "mask": mask, "normalised": functools.partial(_normalised, mask)}
    return [
        words
        for words, output in OUTPUTS.items()
        if not output.of_advantages or _relative(array[mask], evaluated(output.expression, known)[mask]) <= CLOSE
    ]


def _explained(
    fields: Fields, names: dict[str, Any], arrays: dict[str, Array], possible: dict[str, list[str]]
) -> dict[str, str]:
    """Return what the outputs of the function are, as far as a convention gives them."""
    if not call_of(fields):
        return {}
    right, mask = results(fields, names), names["mask"]
    close = (
        (name, next((words for words in possible[name] if _relative(array[mask], right(words)[mask]) <= CLOSE), ""))
        for name, array in arrays.items()
    )
    return {name: words for name, words in close if words}


def _relative(got: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest number, or infinity if one is not finite."""
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return float("inf")
    largest = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(got.astype(np.float64) - expected).max(initial=0.0)) / (largest or 1.0)


def _listed(given: Any) -> str:
    """Return numbers as people write them."""
    numbers = [float(f"{number:.6g}") for number in np.ravel(given)]
    listed = ", ".join(f"{number:g}" for number in numbers)
    return f"[{listed}]" if np.size(given) != 1 or np.ndim(given) > 1 else listed
