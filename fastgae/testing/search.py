"""Find the convention that a function computes: of all that ``conventions`` has, the one with the fewest mistakes."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae.testing.conventions import DEFAULTS, NOTHING, OUTPUTS, PRIMARY, Choice, Fields, conventions
from fastgae.testing.readings import (
    LAYOUTS,
    NEXT_FLAGS,
    Outputs,
    Reading,
    assignments,
    called,
    inner_readings,
    libraries_of,
)
from fastgae.testing.results import CLOSE, FASTGAE, Output, Results, relative
from fastgae.testing.rollouts import Probe, random_rollout

# How many mistakes and how many other choices a convention may have, and whether it may hold only if each call gets one
# episode, in the order in which they are tried.
LEVELS = (*((*each, False) for each in ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))), (0, 0, True), (0, 1, True))
STEPS = 7
# Seeds, steps and scales of random rollouts. JAX takes long to compile a loop of many steps.
SIZES = ((1, 1, 1.0), (2, 2, 1.0), (0, STEPS, 1.0), (3, STEPS, 100.0), (4, 20, 1.0), (5, 150, 1.0))
MOST_OF_JAX = 20
SMALL = 2.0**-10  # times these scales, no number is so large that a function clips it
OTHER_NUMBERS = (0.93, 0.87)
LONG = ((0.8, 0.6), (0.999, 0.99))  # of long rollouts
SHORT = {"last_row_dropped", "last_values_of_the_last_step"}  # mistakes that one more row of values may mend
WRITTEN = (0.9995, 0.9997, 0.9999)  # coefficients of more than three decimals that people write
NOT_EXACT = float(np.finfo(np.float32).tiny)


class Way(NamedTuple):
    """A reading that the function takes, what it returned, and what gamma and gae_lambda may be."""

    reading: Reading
    outputs: Outputs
    numbers: list[tuple[float, float]]


class Match(NamedTuple):
    """A convention, and what the outputs of the function are in it."""

    reading: Reading
    numbers: tuple[float, float]
    choices: tuple[Choice, ...]
    fields: Fields
    outputs: dict[str, Output]
    episodes: bool  # it holds only if each call gets one episode
    whole: bool  # it explains all outputs of the size of the rewards
    unread: int  # how many outputs it does not explain

    @property
    def cost(self) -> tuple[int, int]:
        return self.unread, sum(choice.wrong for choice in self.choices)


class Subject:
    """A function, and all that its calls have shown."""

    def __init__(
        self, function: Callable[..., Any], names: Mapping[str, str | None] | None, numbers: Any, scale: float = 1.0
    ) -> None:
        self.function, self.scale = function, scale
        self.name = getattr(getattr(function, "func", function), "__name__", type(function).__name__)
        self.assignments = assignments(function, names)
        self.said = names or {}
        self.numbers: tuple[float, float] = numbers
        self.raised: dict[str, list[str]] = {}  # error -> in which rollouts
        self.slips: tuple[Choice, ...] = ()  # its mistakes if values have T rows, where T + 1 are right
        self.tried = 0
        self.errors: dict[str, list[Exception]] = {}  # of each library, because a function may raise anything
        self.returned: Outputs | None = None  # by the first reading that it took
        self.libraries = libraries_of(function)
        self._runs = {(name, longer): self._run(name, longer) for name in self.libraries for longer in (False, True)}

    def ways(self, longer: bool) -> Iterator[Way]:
        """Yield the readings that the function takes, with arrays of the first library of which it takes any."""
        for library in self.libraries:
            if any(True for either in (longer, not longer) for _ in self._ways(library, either)):
                yield from self._ways(library, longer)
                return

    def _ways(self, library: str, longer: bool) -> Iterator[Way]:
        """Yield the readings with arrays of a library. None is tried before it is needed, and none twice."""
        self._runs[library, longer], again = itertools.tee(self._runs[library, longer])
        return again

    def _run(self, library: str, longer: bool) -> Iterator[Way]:
        seen, settled = set(), False
        for layout, roles in itertools.product(LAYOUTS, self.assignments):
            if settled and roles is self.assignments[0]:
                return
            for reading, outputs in self._taken(inner_readings(roles, library, layout, longer)):
                arrays = ((name, array.tobytes()) for name, array in outputs.arrays.items())
                same = (*arrays, *sorted(reading.given), reading.longer_values, reading.longer_flags)
                if outputs.arrays and same not in seen and not self._leaves_end_out(reading, outputs):
                    seen.add(same)
                    pulse = self._pulse(reading, "rewards")
                    # Lists have T rows then, and arrays more: values + [last_values] adds arrays.
                    added = reading.longer_values and "last_values" in reading.given
                    settled |= _runs_along_time(pulse) and not added
                    yield self._way(reading, outputs, pulse)

    def _taken(self, readings: Iterator[Reading]) -> Iterator[tuple[Reading, Outputs]]:
        """Yield the first of these readings that the function takes, and those before it that lose a row."""
        for reading in readings:
            errors = self.errors.setdefault(reading.library, [])
            try:
                outputs = called(self.function, reading, self.rollout(reading))
            except Exception as error:
                errors += [error] * (reading.flags == "float32" and reading.layout.words.startswith("arrays"))
                continue
            self.returned = self.returned or outputs
            yield reading, outputs
            if outputs.flat:
                other = reading._replace(flat="NT")
                yield other, called(self.function, other, self.rollout(other))
            whole = outputs.arrays and all(len(array) == STEPS for array in outputs.arrays.values())
            longer = reading.longer_values or reading.longer_flags
            if whole and not longer and (reading.library != "jax" or reading.of_last):
                return

    def check_that_it_ran(self) -> None:
        """Raise an error if the function takes no reading."""
        if any(True for longer in (False, True) for _ in self.ways(longer)):
            return
        first, raised = next(iter(self.errors.items()))  # of the library that the function is written for
        if self.returned is not None:
            given = ", ".join(self.returned.others.values()) or "nothing"
            raise TypeError(
                f"{self.name} returned no floats of the shape of rewards, but {given}: pass a lambda that returns them"
            )
        said = Counter(map(_shown, raised)).most_common(1)[0][0]
        raise TypeError(
            f"{self.name} raised an error however its arguments were passed, with arrays of {first} most often {said}. "
            "If it takes tensors, import their library first; if two arguments exclude each other, leave one out with "
            "names={...: None}; if it takes anything else, call it in a lambda that names its arrays"
        ) from raised[0]

    def rollout(
        self, reading: Reading, seed: int = 0, steps: int = STEPS, episodes: bool = False, scale: float = 1.0
    ) -> Probe:
        numbers = OTHER_NUMBERS if steps > STEPS else self.numbers  # so that it must use those that it takes
        return random_rollout(seed, steps, reading.kind._replace(episodes=episodes), numbers, scale * self.scale)

    def called(self, reading: Reading, rollout: Probe, where: str = "") -> Outputs | None:
        """Call the function with a rollout. If it raises an error, remember that and return None."""
        try:
            return called(self.function, reading, rollout)
        except Exception as error:
            self._note(_shown(error), rollout, where)
            return None

    def _note(self, what: str, rollout: Probe, where: str = "") -> None:
        steps = len(rollout.rewards)
        words, rollouts = f"{steps} step{'s' * (steps > 1)}{where}", self.raised.setdefault(what, [])
        rollouts += [words] * (words not in rollouts)

    def _pulse(self, reading: Reading, *names: str) -> dict[str, Array]:
        """Return the results for a number 1 in row 3 of env 1 of these arrays, and 0 elsewhere."""
        blank = self.rollout(reading).map(np.zeros_like)
        for name in names:
            getattr(blank, name)[3, 1] = 1.0
        blank = blank._replace(mask=~blank.mask, ratios=blank.ratios + 1)
        outputs = self.called(reading, blank)
        return outputs.arrays if outputs else {}

    def _way(self, reading: Reading, outputs: Outputs, pulse: dict[str, Array]) -> Way:
        """Measure gamma and gae_lambda: those that the function does not take, or takes and does not use."""
        others = {name: OTHER_NUMBERS[name == "gae_lambda"] for name in sorted(reading.takes)}
        ignored = (name for name, number in others.items() if self._is_idle(reading, outputs, **{name: number}))
        idle = reading._replace(ignored=tuple(ignored))
        for each in (idle, reading):
            numbers = self._measured(each, pulse)
            if not _left_out(each, numbers[0]):
                break
        return Way(each, outputs, numbers)

    def _leaves_end_out(self, reading: Reading, outputs: Outputs) -> bool:
        """Return whether the function takes one more row in place of an argument that has what follows the last row.

        If it takes arrays of T rows, too, that row hides what it does with the argument.
        """
        hidden = ("last_values",) * reading.longer_values + (*NEXT_FLAGS,) * reading.longer_flags
        return any(self._is_idle(reading, outputs, other=name) for name in hidden if name in reading.given) and any(
            way.reading.roles == reading.roles and {*map(len, way.outputs.arrays.values())} == {STEPS}
            for way in self._ways(reading.library, False)
        )

    def _is_idle(self, reading: Reading, outputs: Outputs, **changed: Any) -> bool:
        """Return whether another number for an argument changes no result."""
        other = self.called(reading, self.rollout(reading)._replace(**changed))
        return other is not None and all(
            np.array_equal(array, other.arrays.get(each, np.nan), equal_nan=True)
            for each, array in outputs.arrays.items()
        )

    def _measured(self, reading: Reading, pulse: dict[str, Array]) -> list[tuple[float, float]]:
        """Return what gamma and gae_lambda may be, the most plausible first.

        A reward or a value of 1 shows in the rows before it as powers of their product, also in normalised results. Of
        both in the same row, returns show gamma one row before.
        """
        gamma, gae_lambda = self.numbers
        if len(reading.takes) == 2:
            return [self.numbers]
        found: list[tuple[float, float]] = []
        of_values, of_both = self._pulse(reading, "values"), self._pulse(reading, "rewards", "values")
        # In the order of the outputs, because the order of a set of names changes from process to process.
        for name in [name for name in pulse if name in of_values and name in of_both]:
            rewards, values, both = (each[name][:, 1] - each[name][-1, 1] for each in (pulse, of_values, of_both))
            decay = rewards[0] / rewards[1] if rewards[1] else 0.0
            measured = both[2] / both[3] if abs(values[3]) < 1e-6 else decay - values[2] / values[3]
            for discount in (gamma,) if "gamma" in reading.takes else (measured, decay, rewards[2] / rewards[3]):
                if 0.0 < discount <= 1.0 + 1e-5:
                    takes_lambda = "gae_lambda" in reading.takes
                    found.append((_written(discount), gae_lambda if takes_lambda else _written(decay / discount)))
        found = [pair for pair in found if all(0.0 <= each <= 1.0 for each in pair)]
        natural = [pair for pair in found if all(round(each, 3) == each or each in WRITTEN for each in pair)]
        # Outputs that are something else give any number, and 0 more often than others.
        natural.sort(key=partial(_left_out, reading))
        return [*dict.fromkeys([*natural, self.numbers, *found])]

    def right(self, reading: Reading) -> Fields:
        """Return the right convention for these arguments."""
        given, ends, longer = reading.given, reading.kind.ends, reading.longer_values
        fields = dict(DEFAULTS)
        if ends < 2:
            fields |= {"e": "terminated" if ends else "no_flags", "either": "{e}", "c": "{e}"}
        if longer:
            fields |= {"v": "values[:-1]", "last": "last_values" if "last_values" in given else "values[-1]"}
        elif "last_values" not in given:
            fields["last"] = "next_values[-1]" if "next_values" in given else NOTHING
        if "next_values" in given:
            fields["n"] = "next_values"
        elif ends == 2:
            fields["n"] = "np.where({u}, {final}, {following})"
        if "values" not in given and "next_values" in given:  # returns depend on V only at later steps
            fields["v"] = "np.concatenate([next_values[:1], next_values[:-1]])"
        elif "values" not in given:
            fields |= {"v": "np.zeros_like(rewards)", "estimator": "discounted_returns", "coefficients": "gamma=gamma"}
        if "mask" in given:
            fields["settings"] = ", mask=mask"
        if {"ratios", "log_ratios"} & given:
            fields |= {"estimator": "vtrace", "settings": f", ratios=ratios{fields['settings']}"}
            fields["coefficients"] = "gamma=gamma, lambda_=gae_lambda"
        return fields

    def match(self) -> Match | None:
        """Return the convention with the fewest mistakes that explains all outputs, or else some of them.

        Longer arrays are tried where shorter ones, which people have at hand, do not do, lose a row, give it its own V
        as V', or give results of another size.
        """
        found = shorter = self._match(longer=False)
        if found is None or found.unread or SHORT & {choice.name for choice in found.choices}:
            found = min(filter(None, (found, self._match(longer=True))), key=lambda each: each.cost, default=None)
        if shorter is not None and found is not shorter:
            self.slips = tuple(choice for choice in shorter.choices if shorter.whole and choice.name in SHORT)
        return found

    def of_many_envs(self, match: Match) -> list[str]:
        """Return the first layout of many envs in which the function has returned the same outputs, in words."""
        ways = (way for longer in (False, True) for way in self.ways(longer) if not way.reading.layout.each_env)
        same = (way for way in ways if way.reading.roles == match.reading.roles)
        return [way.reading.layout.words for way in same if match.outputs.keys() <= way.outputs.arrays.keys()][:1]

    def _match(self, longer: bool) -> Match | None:
        some: Match | None = None
        most = 0  # A layout in which an output has another size does not explain all outputs.
        for level, way in ((level, way) for level in LEVELS for way in self.ways(longer)):
            most = max(most, len(way.outputs.arrays))
            for match in self._matches(way, *level):
                if match.whole and len(match.outputs) == most:
                    return match
                some = some or match
        return some

    def _matches(self, way: Way, mistakes: int, others: int, episodes: bool) -> Iterator[Match]:
        reading = way.reading
        given, kind = reading.given, reading.kind
        rollout = self.rollout(reading, episodes=episodes)
        outputs = self.called(reading, rollout) if episodes else way.outputs
        if outputs is None or (episodes and not (kind.ends or kind.masked)):
            return
        of_last = reading.longer_values or "last_values" in given
        more = {"e": kind.ends > 0, "u": kind.ends > 1, "last": of_last, "no n": "n" not in given}
        more |= {"mask and e": kind.masked and more["e"], "mask alone": kind.masked and not more["e"]}
        more["V of masked"] = kind.masked and "next_values" not in given
        more["T values"] = "values" in given and not reading.longer_values and "next_values" not in given
        more["same rows"] = more["T values"] and not of_last
        has = given | {name for name, holds in more.items() if holds}
        for numbers in way.numbers:
            names = names_of(rollout, reading, numbers)
            for choices, fields in conventions(self.right(reading), has, mistakes, others):
                self.tried += 1
                explained = self._explained(fields, names, outputs, "values" in given)
                whole = len(explained) == len(outputs.arrays)
                unread = len(outputs.arrays) - len(explained) + len(outputs.others)
                match = Match(reading, numbers, choices, fields, explained, episodes, whole, unread)
                if explained and self.error(match) <= CLOSE:
                    yield match

    def _explained(
        self, fields: Fields, names: dict[str, Any], outputs: Outputs, has_values: bool
    ) -> dict[str, Output]:
        """Return what the outputs of the function are, as far as a convention gives them."""
        try:
            results = Results(fields, names)
        except (ValueError, TypeError):  # some choices have no call, or no meaning together
            return {}
        arrays = outputs.arrays
        found = results.explain(arrays, PRIMARY if has_values else ("returns",))
        bases = {output.base for output in found.values()}
        if fields["decay"] == "gamma" and bases == {"returns"} and len(found) < len(arrays) + len(outputs.others):
            return {}  # They are rewards to go, which many loops return beside advantages, and say nothing of these.
        rest = {name: array for name, array in arrays.items() if name not in found}
        found |= results.explain(rest, tuple(OUTPUTS)) if found else {}
        return {name: found[name] for name in arrays if name in found}

    def beside(
        self, match: Match, fields: Fields, rollouts: Iterable[Probe], where: str = ""
    ) -> Iterator[tuple[str, Array, Array]]:
        """Yield each output of some calls, and what it is in a convention, in the mask and if that is finite."""
        for rollout in rollouts:
            if (got := self.called(match.reading, rollout, where)) is None:
                continue
            results = Results(fields, names_of(rollout, match.reading, match.numbers))
            for name, output in match.outputs.items():
                if name not in got.arrays:
                    self._note(f"{name} is {got.others.get(name, 'missing')}", rollout, where)
                    continue
                rows = len(got.arrays[name])
                array, expected = (each[rollout.mask[:rows]] for each in (got.arrays[name], results(output, rows)))
                if np.isfinite(expected).all():
                    yield name, array, expected

    def error(self, match: Match) -> float:
        """Return the largest difference from the convention in some random rollouts; 0 only for the same bits.

        It is infinite without results for a longer rollout than the search has: a few rows may agree by chance.
        """
        most = MOST_OF_JAX if match.reading.library == "jax" else np.inf
        sizes = (size for size in SIZES if size[1] <= most)
        rollouts = (self.rollout(match.reading, seed, steps, match.episodes, scale) for seed, steps, scale in sizes)
        found = [
            (len(rollout.rewards), _off(*pair))
            for rollout in rollouts
            for _, *pair in self.beside(match, match.fields, [rollout])
        ]
        return max(error for _, error in found) if any(steps > STEPS for steps, _ in found) else np.inf

    def long(self, match: Match) -> list[Probe]:
        """Return rollouts of long episodes: decay underflows in one as in 2,000 steps, and is slow in the other."""
        if match.reading.library == "jax":  # as in SIZES
            return []
        rollout = self.rollout(match.reading, 6, SIZES[-1][1], match.episodes)
        if not match.episodes:
            rollout = rollout._replace(terminated=rollout.terminated & False, truncated=rollout.truncated & False)
        return [rollout._replace(gamma=gamma, gae_lambda=gae_lambda) for gamma, gae_lambda in LONG]

    def differing(self, match: Match, fields: Fields, rollout: Probe, where: str = "") -> dict[str, list[Array]]:
        """Return the outputs that differ from a convention in a rollout, and what each is in both."""
        return {name: pair for name, *pair in self.beside(match, fields, [rollout], where) if relative(*pair) > CLOSE}

    def agrees(self, match: Match, fields: Fields, rollouts: Iterable[Probe], where: str = "") -> bool:
        """Return whether the function gives results for some of these rollouts, and all as in a convention."""
        errors = [relative(*pair) for _, *pair in self.beside(match, fields, rollouts, where)]
        return bool(errors) and max(errors) <= CLOSE

    def nearest(self) -> Match:
        """Return the right convention, with each output as the nearer of advantages and returns."""
        reading, outputs, numbers = next(itertools.chain(self.ways(False), self.ways(True)))
        fields = self.right(reading)
        if reading.kind.ends == 2 and not reading.given & {"final_values", "next_values"} and "values" in reading.given:
            fields["n"] = "np.where({u}, {v}, {following})"  # the best that it can do
        results = Results(fields, names_of(self.rollout(reading), reading, numbers[0]))
        bases = [Output(base) for base in PRIMARY["values" not in reading.given : 2]]
        near = {
            name: min(bases, key=lambda each: np.abs(results(each, len(array)) - array).sum())
            for name, array in outputs.arrays.items()
        }
        return Match(reading, numbers[0], (), fields, near, False, False, len(outputs.arrays))


def _shown(error: Exception) -> str:
    """Return an error in one line."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text if len(text) < 100 else text[:97] + '...'}".removesuffix(": ")


def _off(got: Array, expected: Array) -> float:
    """Return the difference of two arrays, and 0 only for the same bits."""
    same = got.dtype == expected.dtype and got.tobytes() == expected.tobytes()
    return 0.0 if same else max(relative(got, expected), NOT_EXACT)


def _left_out(reading: Reading, numbers: tuple[float, float]) -> bool:
    """Return whether the loop leaves out a coefficient that it takes: 0 or 1 in its place is no number of its own."""
    own = dict(zip(("gamma", "gae_lambda"), numbers, strict=True))
    return bool({0.0, 1.0} & {own[name] for name in reading.ignored})


def names_of(rollout: Probe, reading: Reading, numbers: tuple[float, float]) -> dict[str, Any]:
    """Return the names that the expressions of conventions use."""
    names = rollout.arguments(reading.longer_values)
    both = zip(("gamma", "gae_lambda"), numbers, strict=True)
    measured = {name: number for name, number in both if name not in reading.takes}
    return {**names, **measured, "no_flags": np.zeros_like(rollout.rewards, bool), "np": np, "fastgae": FASTGAE}


def _runs_along_time(pulse: dict[str, Array]) -> bool:
    """Return whether a reward in row 3 of env 1 changes rows before it, and no other env, as if time were this axis."""
    inside = [np.nan_to_num(array[:3, 1]) for array in pulse.values()]
    outside = [np.nan_to_num(np.r_[array[4:, 1], np.delete(array, 1, 1).ravel()]) for array in pulse.values()]
    alone = all(np.ptp(each) <= 1e-6 for each in outside)
    return alone and any(np.ptp(np.r_[each, rest[:1]]) > 1e-3 for each, rest in zip(inside, outside, strict=True))


def _written(number: float) -> float:
    """Return a coefficient as people write it, if it is that up to rounding."""
    number = float(number)  # because float32's 0.99 is another number
    shortest = min((round(number, 3), *WRITTEN), key=lambda each: abs(each - number))
    return shortest if abs(shortest - number) < 3e-6 else round(number, 6)
