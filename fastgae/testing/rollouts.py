"""Small rollouts, and how to pass them to a function that takes its arrays by other names, layouts and libraries."""

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._interop.libraries import LIBRARIES, on_the_cpu
from fastgae._misnamed import GOING_ON, NAMES_ELSEWHERE

# What an argument may be -> its names.
NAMES = {
    **{
        role: [role, *NAMES_ELSEWHERE[role].split()]
        for role in ("rewards", "values", "terminated", "truncated", "last_values", "next_values", "final_values")
    },
    **{role: [role, *NAMES_ELSEWHERE[role].split()] for role in ("mask", "gamma", "gae_lambda")},
    # Other names that NAMES_ELSEWHERE has for terminated: an episode may end in two ways, or a row means another step.
    "done": ["done", "dones", "mb_dones", "fdones", "end_flag", "end", "ends", "is_last"],
    "starts": ["starts", "episode_starts", "firsts", "is_first"],
    "going_on": ["going_on", *GOING_ON],
    "discounts": ["discounts", "discount_t"],
    "next_done": ["next_done", "next_dones", "last_done", "last_dones"],
}
ROLES = {name: role for role, names in NAMES.items() for name in names}
# What an argument is that others read otherwise, for the report.
NOTES = {
    "mask": "{} is True where the step exists",
    "starts": "row t of {} says that observation t begins an episode: step t has the flag of row t + 1",
    "going_on": "{} is 1 where the step ended no episode",
    "discounts": "{} is gamma, and 0 where the step ended the episode",
}
FLAGS = ("terminated", "truncated", "done", "starts", "next_done", "mask")
ENDS = {"terminated", "done", "starts", "going_on", "discounts"}
BY_ENV = ("last_values", "next_done")
COPIES = {"torch": ("torch", "tensor"), "jax": ("jax.numpy", "array")}


class Probe(NamedTuple):
    """Rewards, values and flags of shape (T, N), with one more row of values, and the numbers of a call."""

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    final_values: Array  # V of the next observation where an episode ends
    mask: Array
    gamma: float
    gae_lambda: float

    def map(self, function: Callable[[Array], Array]) -> "Probe":
        """Return the rollout with a function applied to each array."""
        changed: dict[str, Any] = {name: function(getattr(self, name)) for name in Probe._fields[:-2]}
        return self._replace(**changed)

    def arguments(self) -> dict[str, Any]:
        """Return all that a function may ask for."""
        done = self.terminated | self.truncated
        return {
            **self._asdict(),
            "values": self.values[:-1],
            "longer_values": self.values,
            "last_values": self.values[-1],
            "next_values": np.where(done, self.final_values, self.values[1:]),
            "done": done,
            "going_on": (~done).astype(np.float32),
            "starts": np.concatenate([~done[:1] & done[:1], done[:-1]]),
            "next_done": done[-1],
            "discounts": (self.gamma * ~done).astype(np.float32),
        }


def random_rollout(seed: int, steps: int, envs: int, ends: int, masked: bool, coefficients: Any) -> Probe:
    """Return a rollout of random numbers. ``ends``: in how many ways an episode may end, none, by one flag or two."""
    rng = np.random.default_rng(seed)
    rewards, final_values = rng.normal(size=(2, steps, envs)).astype(np.float32)
    values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    kind = rng.choice(5, size=(steps, envs))
    mask = rng.random((steps, envs)) < 0.7 if masked else np.ones((steps, envs), bool)
    mask[0] = True  # each env has a step
    kinds = (kind == 0) & (ends > 0), (kind == 1) & (ends > 1)
    return Probe(rewards, values, *kinds, final_values, mask, *coefficients)


def tiny_rollouts(ends: int, coefficients: Any) -> Iterator[Probe]:
    """Yield all patterns of flags of 1 to 3 steps of one env, the shortest first."""
    for steps in (1, 2, 3):
        for pattern in itertools.product(range(ends + 1), repeat=steps):
            kind = np.array(pattern)[:, np.newaxis]
            numbers = [
                np.arange(first, first + rows, dtype=np.float32)[:, np.newaxis]
                for first, rows in ((1, steps), (11, steps + 1), (21, steps))
            ]
            yield Probe(numbers[0], numbers[1], kind == 1, kind == 2, numbers[2], kind >= 0, *coefficients)


class Layout(NamedTuple):
    """How arrays of shape (T, N) and (N,) are passed, and how results come back."""

    words: str
    steps: Callable[[Array], Array]
    envs: Callable[[Array], Array]
    back: Callable[[Array], Array]


LAYOUTS = (
    Layout("(T, N)", lambda a: a, lambda a: a, lambda a: a),
    Layout("(N, T)", lambda a: a.T, lambda a: a, lambda a: a.T),
    Layout("(T,)", lambda a: a[:, 0], lambda a: a[0], lambda a: a[:, np.newaxis]),
    Layout("(T, N, 1)", lambda a: a[..., np.newaxis], lambda a: a[:, np.newaxis], lambda a: a[..., 0]),
    Layout("(N, T, 1)", lambda a: a.T[..., np.newaxis], lambda a: a[:, np.newaxis], lambda a: a[..., 0].T),
)


class Style(NamedTuple):
    """One way to pass a rollout."""

    library: str
    layout: Layout
    longer: bool  # values have T + 1 rows
    flags: str  # their dtype


def styles(roles: Mapping[str, str]) -> Iterator[Style]:
    """Yield the ways to pass a rollout to a function with these arguments, the most common first."""
    has_last = {"last_values", "next_values"} & set(roles.values())
    libraries = ["numpy", *(name for name in LIBRARIES if name in sys.modules)]
    for library, layout in itertools.product(libraries, LAYOUTS):
        for longer, flags in itertools.product((False,) if has_last else (True, False), ("float32", "bool")):
            yield Style(library, layout, longer, flags)


def roles_of(function: Callable[..., Any], names: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return what each argument of a function is. ``names`` says it for some; None there leaves an argument out."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise TypeError(f"cannot tell the arguments of {function!r}: pass a lambda that calls it") from error
    given = dict(names or {})
    for name, role in given.items():
        if name not in parameters:
            raise ValueError(f"names has {name!r}, but the function takes {', '.join(parameters)}")
        if role is not None and role not in NAMES:
            raise ValueError(f"names[{name!r}] is {role!r}; expected one of {', '.join(NAMES)}")
    roles = {}
    for name, parameter in parameters.items():
        if role := given.get(name, ROLES.get(name) if name not in given else None):
            roles[name] = role
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"cannot tell what the argument {str(parameter).partition(':')[0]} is: say so with "
                f'names={{"{name}": ...}}, one of {", ".join(NAMES)}, or pass a lambda that fills it in'
            )
    if "next_done" in roles.values():  # then row t of the other flags is the flag of observation t, as in CleanRL
        roles = {name: "starts" if role == "done" and name not in given else role for name, role in roles.items()}
    for needed in ("rewards", "values"):
        if needed not in roles.values():
            raise TypeError(f'no argument of the function is {needed}: say which with names={{...: "{needed}"}}')
    return roles


class Outputs(NamedTuple):
    """The results of a call, as NumPy arrays of shape (T, N)."""

    arrays: dict[str, Array]
    written: tuple[str, ...]  # arguments that the function has changed


def called(function: Callable[..., Any], roles: Mapping[str, str], style: Style, rollout: Probe) -> Outputs:
    """Call a function with a rollout."""
    if style.layout.words == "(T,)" and rollout.rewards.shape[1] > 1:
        alone = [called(function, roles, style, _env(rollout, n)) for n in range(rollout.rewards.shape[1])]
        joined = {name: np.concatenate([each.arrays[name] for each in alone], 1) for name in alone[0].arrays}
        return Outputs(joined, alone[0].written)
    values = rollout.arguments()
    if style.longer:
        values["values"] = values["longer_values"]
    passed = {name: _converted(role, values[role], style) for name, role in roles.items()}
    before = {name: _array(given).copy() for name, given in passed.items()}
    names = inspect.signature(function).parameters.values()
    positional = [passed.pop(each.name) for each in names if each.kind is each.POSITIONAL_ONLY and each.name in passed]
    result = function(*positional, **passed)
    written = tuple(name for name, given in passed.items() if not np.array_equal(_array(given), before[name], True))
    arrays = {}
    for name, each in _items(result):
        try:
            array = _array(each)
        except (TypeError, ValueError):  # no array
            continue
        if array.shape == style.layout.steps(rollout.rewards).shape and array.dtype.kind == "f":
            arrays[name] = style.layout.back(array).copy()  # the function may use its memory again
    return Outputs(arrays, written)


def _env(rollout: Probe, n: int) -> Probe:
    return rollout.map(lambda array: array[:, n : n + 1])


def _converted(role: str, given: Any, style: Style) -> Any:
    if not isinstance(given, np.ndarray):
        return given
    array = (style.layout.envs if role in BY_ENV else style.layout.steps)(given)
    array = np.array(array, style.flags if role in FLAGS else None, order="C")
    if style.library == "numpy":
        return array
    module, name = COPIES[style.library]
    return getattr(importlib.import_module(module), name)(array)


def _items(result: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays that a function returned, and their names."""
    if isinstance(result, Mapping):
        yield from ((str(name), each) for name, each in result.items())
        return
    if not isinstance(result, tuple):
        yield "result", result
    if isinstance(result, tuple | list):  # a list may be the rows of one array, or some arrays
        names = getattr(result, "_fields", [f"result[{number}]" for number in range(len(result))])
        yield from zip(names, result, strict=True)


def _array(given: Any) -> Array:
    rows = isinstance(given, list)
    return np.stack([np.asarray(on_the_cpu(row)) for row in given]) if rows and given else on_the_cpu(given)
