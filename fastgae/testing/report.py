"""Say in words which convention a function computes, and what is wrong in it."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._canonical.arguments import as_number, as_share
from fastgae._diagnose.report import Finding, Places, as_html, as_text
from fastgae.testing.conventions import MISTAKES, NOTHING, ODD, ONE_EPISODE, TOO_EARLY, Fields, call_of, composed
from fastgae.testing.readings import ENDS, Outputs, converted, roles_of
from fastgae.testing.results import CLOSE, Output
from fastgae.testing.rollouts import Probe, tiny_rollouts
from fastgae.testing.search import NOT_EXACT, SMALL, Match, Subject

BOTH = " with both flags at the same ends"
FIRST = " of which the first begins an episode"
PLAIN = (  # conventions without any choice, by the number of flags
    "no flags: each env is one sequence",
    "the flag of a step cuts its bootstrap and its trace, which is right for a limit only if the reward holds gamma V'",
    "terminated cuts the bootstrap, either end cuts the trace, and truncated steps bootstrap from final values",
)
BESIDE = ODD.keys() - {"returns_of_normalised_advantages", "one_episode", "numbers_clipped"}  # no rollout shows these


@dataclass(frozen=True)
class Identified:
    """What a function computes. ``str`` gives the report for people, and a notebook shows it as a table.

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
        The call of fastgae that gives the same advantages, with arrays of shape (T, N), or (N, T) if it has
        ``time_axis=1``. Empty if it is unknown.
    error : float
        The largest difference from that call, relative to the largest number; 0.0: the same bits. NaN if the convention
        is unknown.
    findings : tuple of Finding
        What is wrong in it. The detector of each is the name of the mistake.
    smallest : dict
        The smallest rollout that shows it, with the results of both.
    tried : str
        If the convention is unknown: what was tried, and what would help.
    """

    function: str
    arguments: str
    outputs: dict[str, str]
    convention: tuple[str, ...]
    call: str
    error: float
    findings: tuple[Finding, ...]
    smallest: dict[str, str]
    tried: str

    @property
    def known(self) -> bool:
        """Whether fastgae knows the convention."""
        return bool(self.call)

    @property
    def _heading(self) -> str:
        found = f"{len(self.findings) or 'no'} finding{'s' * (len(self.findings) != 1)}"
        return f"{self.function}: {found if self.known else f'its convention is unknown, and {found}'}"

    def _about(self) -> dict[str, str]:
        near = f"within {self.error:.0e} of this call, relatively"
        equal = "equal to this call, but for the dtype or the sign of zeros"
        same = {0.0: "the same bits as this call", NOT_EXACT: equal}.get(self.error, near)
        numpy = "NumPy " * ("np." in self.call and "numpy" not in self.arguments)
        shape = " of shape (T, N)" * ("(N, T" in self.arguments and "time_axis" not in self.call)
        same += f", with {numpy}arrays{shape}" * bool(numpy or shape)
        found = {finding.detector for finding in self.findings}
        same += " where no step has both flags" * ("both_flags" in found)
        same += " where rewards and values are small" * ("numbers_clipped" in found)
        lines = {
            "unknown": self.tried,
            "outputs": ", ".join(f"{name}: {words}" for name, words in self.outputs.items()),
            "convention": "; ".join(each for each in self.convention if not any(each in f.what for f in self.findings)),
            "call": self.call,
            "exactness": same * self.known,
            "arguments": self.arguments,
            **self.smallest,
        }
        return {name: text for name, text in lines.items() if text}

    def __str__(self) -> str:
        return as_text(self._heading, self.findings, self._about())

    def _repr_html_(self) -> str:
        return as_html(self._heading, self.findings, self._about())


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
        It takes arrays of NumPy, torch or JAX, and returns advantages, returns, or both, as arrays, in a tuple or in a
        dict. Shapes (T, N), (N, T), (T,) and these with an axis of length 1 are tried, lists and tuples of rows, lists
        of numbers and of tensors of one number, and flags as bool and as numbers. Tensors are tried first if the
        function's code names their library. Wrap anything else in a lambda.
    names : dict, optional
        What an argument is, if its name does not say so: {"d": "terminated"}. None leaves an argument at its default.
        ``fastgae.testing.ROLES`` has all names that are understood, also after "batch_" or before "_list", with what
        they may mean: "done" is a flag of both ends of an episode, "starts" is the flag of an observation that begins
        an episode, "next_done" is the flag after the last step, "going_on" is 1 - done, "not_starts" is 1 - starts,
        "discounts" is gamma (1 - terminated). Most others are arguments of ``gae`` and ``vtrace``. Where a name may
        mean several, all are tried.
    gamma, gae_lambda : float
        Passed to the function if it has such arguments. What it has built in is measured.

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
    numbers = as_share("gamma", gamma), as_share("gae_lambda", gae_lambda)
    if not gamma:
        raise ValueError("gamma must not be 0: later steps would have no effect")
    subject = Subject(function, names, numbers)
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # of numbers that are not finite
        match = subject.match()
        if match is None:
            subject.check_that_it_ran()
            small = Subject(function, names, numbers, SMALL)
            match = small.match()
            subject = subject if match is None else small
        return _Report(subject, match or subject.nearest(), known=match is not None).identified()


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
    if isinstance(allow, str) or not isinstance(allow, Iterable) or not {*allow} <= MISTAKES.keys():
        raise ValueError(f"allow must be a tuple of names of findings, got {allow!r}; known are {', '.join(MISTAKES)}")
    if not 0.0 <= as_number("tolerance", tolerance, "a number >= 0") <= CLOSE:
        raise ValueError(f"tolerance must be in [0, {CLOSE:g}], because identify knows nothing that differs more")
    found = identify(function, names=names, gamma=gamma, gae_lambda=gae_lambda)
    wrong = {finding.detector for finding in found.findings} - {*allow}
    is_gae = found.call.startswith(("fastgae.gae(", "fastgae.reverse_scan(")) and "tail_normalized" not in found.call
    if wrong or not (found.known and is_gae) or found.error > tolerance:
        raise AssertionError(str(found))


class _Report:
    """What is to be said of a function and its convention, or of the nearest one if its own is unknown."""

    def __init__(self, subject: Subject, match: Match, known: bool) -> None:
        self.subject, self.match, self.known = subject, match, known
        self.words = {name: output.words(match.reading.layout.each_env) for name, output in match.outputs.items()}
        self.right = self.without(MISTAKES) if known else match.fields

    def without(self, names: Collection[str]) -> Fields:
        """Return the convention without the choices of these names."""
        kept = (choice for choice in self.match.choices if choice.name not in names)
        return composed(self.subject.right(self.match.reading), kept)

    def identified(self) -> Identified:
        subject, match, known = self.subject, self.match, self.known
        subject.raised.clear()  # what other readings of the arguments raised is no finding
        error = subject.error(match) if known else float("nan")
        found = (self.words, self.convention(), self.call(match.fields)) if known else ({}, (), "")
        findings = tuple(self.findings())
        wrong = not known or any(each.detector not in BESIDE for each in findings)
        shown, tried = self.smallest() if wrong else {}, "" if known else self.tried()
        return Identified(subject.name, str(match.reading), *found, error, findings, shown, tried)

    def call(self, fields: Fields) -> str:
        """Return the call of a convention, with the numbers that the function has built in."""
        reading, call = self.match.reading, call_of(fields)
        if "(N, T" in reading.layout.words and not re.search(r"\[|\(0|reverse_scan", call):
            call = call_of({**fields, "coefficients": fields["coefficients"] + ", time_axis=1"})
        for name, number in zip(("gamma", "gae_lambda"), self.match.numbers, strict=True):
            if name not in reading.takes:
                call = re.sub(rf"\b{name}\b(?!=)", f"{number:g}", call)
        return call

    def convention(self) -> tuple[str, ...]:
        """Return what the function does, and what it does with values of T rows, if it takes those as well."""
        kind = self.match.reading.kind
        plain = PLAIN[kind.ends] + "; a masked step is skipped, as if it were cut out" * kind.masked
        words = [choice.words for choice in self.match.choices] or [plain]
        return (*words, *(f"with values of T rows, {slip.words}" for slip in self.subject.slips))

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong: first in the convention, and then beside it."""
        match, subject = self.match, self.subject
        for choice in filter(lambda choice: choice.wrong, match.choices):
            episodes = (subject.rollout(match.reading, seed, episodes=True) for seed in range(3))
            cut = choice.name == "trace_not_cut" and subject.agrees(match, self.without({choice.name}), episodes)
            yield _finding(choice.name, f"right only if {ONE_EPISODE}: " * cut + choice.words)
        yield from (_finding(name, ODD[name].format(", ".join(what))) for name, what in self.beside().items() if what)

    def beside(self) -> dict[str, Collection[str]]:
        """Return what is to be said of each mistake beside the convention: nothing if the function does not make it."""
        match, subject, reading, kind = self.match, self.subject, self.match.reading, self.match.reading.kind
        compared = partial(subject.differing, match, match.fields) if self.known else lambda *_: ()
        rollout = subject.rollout(reading, episodes=match.episodes)
        both = rollout._replace(truncated=rollout.truncated | rollout.terminated)
        has_both = {"terminated", "truncated"} <= reading.given
        has_first = reading.longer_flags or {"starts", "not_starts"} & reading.given
        late = any(choice.name == "flags_late" for choice in match.choices)
        no_last = self.known and self.right["last"] == match.fields["last"] == NOTHING
        padding = "padding comes last in each row"
        if match.episodes and not kind.ends:
            flipped = subject.rollout(reading, episodes=True).map(np.flipud)
            if subject.agrees(match, match.fields, [flipped], " with padding first"):
                padding = "the mask is one span in each row"
        calls = rollout, rollout._replace(rewards=rollout.values[1:], values=1 - rollout.values), rollout
        once, _, again = (subject.called(reading, each) or Outputs({}, {}, False, ()) for each in calls)
        arrays = {name: (array, again.arrays.get(name)) for name, array in once.arrays.items()}
        words = [*self.words.values()] if self.known else []
        twice = {each for each in words if words.count(each) > 1}
        outputs = match.outputs.items()
        return {
            "returns_of_normalised_advantages": [name for name, each in outputs if each.base == TOO_EARLY],
            "returns_normalised": [
                name
                for name, each in outputs
                if each.scaling and "returns" in each.base and "normalised" not in each.base
            ]
            * ("values" in reading.given),
            "one_episode": [ONE_EPISODE if kind.ends else padding] * match.episodes,
            "first_flag": compared(rollout._replace(begins=True), FIRST) if has_first and not late else (),
            "outputs_exchanged": [f"{name} is {each.base}" for name, each in outputs if _exchanged(name, each)],
            "numbers_clipped": ["larger ones are clipped, or changed in another way"] * (subject.scale == SMALL),
            "long_rollouts": dict.fromkeys(name for each in subject.long(match) for name in compared(each)),
            "one_env": subject.of_many_envs(match) if self.known and reading.layout.each_env else (),
            "last_values_missing": [""] * (no_last and kind.ends > 0 and not kind.masked),
            "both_flags": compared(both, BOTH) if has_both else (),
            "raises": [f"{error} ({'; '.join(rollouts)})" for error, rollouts in subject.raised.items()],
            "inputs_written": once.written,
            "not_deterministic": [name for name, (a, b) in arrays.items() if b is None or a.tobytes() != b.tobytes()],
            "not_finite": [name for name, (array, _) in arrays.items() if not np.isfinite(array).all()],
            "output_unknown": [name for name in arrays if self.known and name not in match.outputs]
            + [f"{name} ({each})" for name, each in once.others.items()],
            "coefficient_ignored": reading.ignored if self.known else (),
            # Returns are also targets, so they may be returned twice beside advantages.
            "outputs_equal": sorted(each for each in twice if "advantages" in each or len({*words}) == 1),
        }

    def tried(self) -> str:
        """Return what was tried, and what would help."""
        reading, ways = self.match.reading, [way for longer in (False, True) for way in self.subject.ways(longer)]
        unsure = [name for name in reading.roles if len(roles_of(name)) > 1 and name not in self.subject.said]
        help_ = [f"say what {name} is, with names={{{name!r}: ...}}" for name in unsure]
        if len(reading.takes) < 2:
            help_.append("pass the gamma and gae_lambda that it has built in, identify(f, gamma=..., gae_lambda=...)")
        help_.append("let it return plain advantages, or split it, and identify its parts")
        return (
            f"I do not know. {self.subject.tried:,} conventions were tried, with up to two mistakes, on "
            f"{len(ways)} way{'s' * (len(ways) > 1)} to pass the arrays. It may be right. What would help: "
            f"{'; '.join(help_)}"
        )

    def smallest(self) -> dict[str, str]:
        """Return the smallest rollout in which the function differs from the right call, with the results of both."""
        match, reading, name = self.match, self.match.reading, self.subject.name
        meant = {n: Output("returns") if each.base == TOO_EARLY else each for n, each in match.outputs.items()}

        def different(rollout: Probe) -> dict[str, list[Array]]:
            """Return the outputs that differ there. NaN, as Bessel's std of one number, shows no mistake."""
            differing = self.subject.differing(match._replace(outputs=meant), self.right, rollout)
            return {name: pair for name, pair in differing.items() if np.isfinite(pair[0]).all()}

        tiny = [*tiny_rollouts(reading.kind, self.subject.numbers)]
        large = (each._replace(rewards=1000 * each.rewards) for each in tiny)
        shown = next(filter(different, itertools.chain(tiny, large)), None)
        if shown is None:
            return {}
        for field in ("rewards", "values", "final_values"):
            for row, number in itertools.product(range(len(getattr(shown, field))), (1.0, 0.0)):
                array = getattr(shown, field).copy()
                array[row] = number
                if different(shorter := shown._replace(**{field: array})):
                    shown = shorter
        if not (differing := different(shown)):  # now: it gives other numbers each time
            return {}
        output, (got, expected) = next(iter(differing.items()))
        given = shown.arguments(reading.longer_values, reading.longer_flags)
        call, words = self.call(self.right), meant[output].words(reading.layout.each_env)
        hidden = ["terminated"] if given["terminated"].any() and not reading.given & ENDS else []
        unseen = [role for role in (*hidden, "final_values") if role in call and role not in reading.given]
        passed = {role: _listed(converted(given[role], reading)) for role in (*reading.given, *unseen)}
        lines = [f"{argument} = {passed[role]}" for argument, role in reading.roles.items()]
        lines += [f"{role} = {passed[role]}, for which {name} has no argument" for role in unseen]
        return {
            "rollout": f"the smallest in which {name} and fastgae differ: {', '.join(lines)}",
            "it gives": f"{words if self.known else output} {_listed(got)}",
            "fastgae": f"{words} {_listed(expected)}, by {call}",
        }


def _finding(name: str, what: str) -> Finding:
    return Finding(what, Places(), *MISTAKES[name], name)


def _exchanged(name: str, output: Output) -> bool:
    """Return whether an output is called advantages and is not, or returns or targets."""
    called = name.lower()
    other = "returns" if "adv" in called else "advantages" if "return" in called or "target" in called else None
    return other is not None and output.base in (other, "values")


def _listed(given: Any) -> str:
    """Return numbers as people write them."""
    if np.ndim(given):
        return f"[{', '.join(map(_listed, given))}]"
    return f"{float(given):.6g}"
