"""How to call a function that takes its arrays by other names, in other shapes and libraries, and read its results."""

import importlib
import inspect
import itertools
import operator
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._interop.libraries import LIBRARIES, on_the_cpu
from fastgae._support.misnamed import GOING_ON, NAMES_ELSEWHERE
from fastgae._support.signatures import annotations, signature
from fastgae.testing.rollouts import FLAGS, Kind, Probe

# What an argument may be -> its names. If a name is in several rows, all are tried, the first row first.
_FLAGS = {
    "mask": "masks",
    "going_on": f"{' '.join(GOING_ON)} masks mask done_mask done_masks terminal_mask terminal_masks "
    "undones cont conts continuation continuations continues",
    "not_truncated": "bad_masks",
    "done": "dones is_done done_buf mb_dones fdones mb_fdones dones_arr done_mask done_masks terminal_mask "
    "terminal_masks end_flag end ends is_last traj_flag",
    "starts": "episode_starts first firsts is_first news",
    "not_starts": "masks mask",
    "next_done": "next_dones last_done last_dones new_last",
    "next_going_on": "next_mask next_masks last_mask",
    "discounts": "discount_t discount_tp1 pcont",
}
_OTHER_MEANING = {*" ".join(_FLAGS.values()).split(), "done", "log_rhos", "num_steps"}
_ELSEWHERE = {
    role: " ".join(name for name in names.split() if role == "mask" or name not in _OTHER_MEANING)
    for role, names in NAMES_ELSEWHERE.items()
    if role in {*Probe._fields, "last_values", "next_values"}
}
_SECOND = {
    "done": "next_done next_dones",
    "terminated": "done dones",
    "values": "bootstrap_values",
    "next_values": "next_value value_next v_t",
    "last_values": "next_values next_val v_s_ final_value final_values terminal_value",
    "final_values": "bootstrap_values",
    "discounts": "discount discounts",
    "next_done": "done dones fdones",
    "log_ratios": "log_rhos rhos rho",
    "steps": "num_steps",
}
ROLES: dict[str, tuple[str, ...]] = {}
for _role, _names in itertools.chain(_FLAGS.items(), _ELSEWHERE.items(), _SECOND.items()):
    for _name in (_role, *_names.split()):
        ROLES[_name] = tuple(dict.fromkeys((*ROLES.get(_name, ()), _role)))
WORDS = sorted({role for roles in ROLES.values() for role in roles})
# What people write around a name of two letters or more: batch_rewards, dones_list.
AROUND = re.compile(
    r"^(all|b|batch|buf|buffer|ep|episode|mb|traj|trajectory)_(?=..)|"
    r"(?<=..)_(arr|array|batch|buf|buffer|list|lst|matrix|np|seq|tensor)$"
)
# What an argument is that others read otherwise, for the report.
NOTES = {
    "mask": "{} is True where the step exists",
    "starts": "row t of {} says that observation t begins an episode: step t has the flag of row t + 1",
    "not_starts": "row t of {} is 0 where observation t begins an episode: step t has the flag of row t + 1",
    "going_on": "{} is 1 where the step ended no episode",
    "not_truncated": "{} is 0 where the step was truncated",
    "discounts": "{} is gamma, and 0 where terminated",
    "steps": "{} is the number of steps of the rollout",
}
OF_BOTH = {"done", "going_on", "starts", "not_starts"}  # flags of both ends of an episode
ENDS = {*OF_BOTH, "terminated", "discounts"}
NEXT_FLAGS = {"next_done": ("done", "starts"), "next_going_on": ("going_on", "not_starts")}
SWITCHES = {"mask", *FLAGS, *NEXT_FLAGS}  # what may be True by default; discount=True is no number
COPIES = {"torch": ("torch", "tensor"), "jax": ("jax.numpy", "array")}


def roles_of(name: str) -> tuple[str, ...]:
    """Return what an argument may be by its name."""
    return ROLES.get(name) or ROLES.get(AROUND.sub("", name), ())


def assignments(function: Callable[..., Any], names: Mapping[str, str | None] | None) -> list[dict[str, str]]:
    """Return what the arguments of a function may be. ``names`` says it for some; None there leaves an argument out."""
    parameters = _parameters(function)
    if not isinstance(names, Mapping | None):
        raise TypeError(f'names must be a dict, such as {{"d": "terminated"}}, got {names!r}')
    given = dict(names or {})
    named = {name for name, each in parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    shown = getattr(function, "__name__", "f").replace("<lambda>", "f")
    line = f"identify(lambda rewards, values, dones: {shown}(...))"
    for name, role in given.items():
        if name not in named and not takes_more:
            raise ValueError(f"names has {name!r}, but the function takes {', '.join(parameters)}")
        if role is not None and role not in WORDS:
            raise ValueError(f"names[{name!r}] is {role!r}; expected one of {', '.join(WORDS)}")
    filled = getattr(function, "keywords", {})  # of functools.partial
    possible = {name: roles_of(name) for name in parameters if name in named and name not in filled}
    switches = [name for name in possible if isinstance(parameters[name].default, bool)]
    possible |= {name: tuple(role for role in possible[name] if role in SWITCHES) for name in switches}
    possible |= {name: () if role is None else (role,) for name, role in given.items()}
    for name, roles in possible.items():
        if not roles and name in named and parameters[name].default is inspect.Parameter.empty:
            unknown = f"cannot tell what the argument {name} is: say so"
            left_out = f"names[{name!r}] is None, and it has no default: say what it is"
            raise TypeError(
                f"{left_out if name in given else unknown} with names={{{name!r}: ...}}, one of "
                f"{', '.join(WORDS)}, fill it in with identify(functools.partial({shown}, {name}=...)), or make it in "
                f"a lambda: {line}"
            )
    possible = {name: roles for name, roles in possible.items() if roles}
    found = [_fitted(dict(zip(possible, roles, strict=True)), given) for roles in itertools.product(*possible.values())]
    sensible = [roles for roles in found if roles and "rewards" in roles.values()]
    if not sensible:
        usual = {name: "flags of both ends" if roles[0] in OF_BOTH else roles[0] for name, roles in possible.items()}
        shared = {role: [name for name in usual if usual[name] == role] for role in usual.values()}
        alike = {role: names for role, names in shared.items() if len(names) > 1}
        same = "; ".join(f"{' and '.join(names)} are all {role}" for role, names in alike.items())
        alone = "next_done has no done or starts beside it (next_going_on: going_on or not_starts)"
        wrong = (same or alone) if "rewards" in shared else "no argument of the function is rewards"
        unsure = ", ".join(f"{name!r}: ..." for names in alike.values() for name in names) or '...: "rewards"'
        raise TypeError(
            f"{wrong}: say what they are with names={{{unsure}}}, where None leaves one out, or call it in "
            f"a lambda that names them: {line}"
        )
    return sensible


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    if not callable(function):
        raise TypeError(
            f"identify takes a function, and got {type(function).__name__}: pass the function that computes the "
            "advantages, or look at arrays with fastgae.diagnose"
        )
    try:
        return signature(function).parameters
    except (TypeError, ValueError) as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"cannot tell the arguments of {name}: pass a lambda that calls it") from error


def _fitted(roles: dict[str, str], said: Container[str]) -> dict[str, str] | None:
    """Return roles that fit together, or None: no role twice, and ``done`` alone is both ends, unless it is said."""
    # Beside next_done, flags that are called terminated are about observations, as in a loop after CleanRL.
    guessed = {role for name, role in roles.items() if name not in said}
    if {"terminated", "next_done"} <= guessed and not {*FLAGS, "discounts"} - {"terminated"} & {*roles.values()}:
        roles = {name: "done" if role == "terminated" else role for name, role in roles.items()}
    for following, (own, begins) in NEXT_FLAGS.items():
        if following in roles.values() and not any(roles[name] == own for name in roles if name in said):
            roles = {name: begins if role == own else role for name, role in roles.items()}
            if begins not in roles.values() and {*roles.values()} & {*FLAGS, "discounts"}:
                return None
    given = {*roles.values()}
    unsaid = {name: roles_of(name) for name in roles if name not in said}
    # What a name can mean, and usually does not: its other meanings need more arguments beside them, or fewer.
    second = {roles[name] for name, possible in unsaid.items() if roles[name] != possible[0]}
    if len(given) < len(roles) or len(given & OF_BOTH) > 1:
        return None
    if "terminated" in second and not given & {*OF_BOTH, "truncated", "not_truncated", "discounts"}:
        return None
    if "terminated" in given and any("mask" in each and roles[name] in OF_BOTH for name, each in unsaid.items()):
        return None  # Beside a flag, a mask says which steps exist.
    return None if "discounts" in second and given & {*OF_BOTH, "terminated"} else roles


class Layout(NamedTuple):
    """How arrays of shape (T, N) and (N,) are passed."""

    words: str
    each_env: bool  # a call gets one env
    steps: Callable[[Array], Array]
    envs: Callable[[Array], Array]
    held: Callable[[Any], Any] = lambda array: array  # in a list


LAYOUTS = (
    Layout("arrays of shape (T, N)", False, lambda a: a, lambda a: a),
    Layout("arrays of shape (N, T)", False, lambda a: a.T, lambda a: a),
    Layout("arrays of shape (T,)", True, lambda a: a[:, 0], lambda a: a[0]),
    Layout("arrays of shape (T, N, 1)", False, lambda a: a[..., np.newaxis], lambda a: a[:, np.newaxis]),
    Layout("arrays of shape (N, T, 1)", False, lambda a: a.T[..., np.newaxis], lambda a: a[:, np.newaxis]),
    Layout("arrays of shape (T, 1)", True, lambda a: a, lambda a: a),
    Layout("lists of T arrays of shape (N,)", False, lambda a: a, lambda a: a, list),
    Layout("tuples of T arrays of shape (N,)", False, lambda a: a, lambda a: a, tuple),
    Layout("lists of T numbers", True, lambda a: a[:, 0], lambda a: a[0], lambda array: array.tolist()),
    Layout("lists of T arrays without axes", True, lambda a: a[:, 0], lambda a: a[0], list),  # torch.stack takes them
    Layout("lists of T arrays of shape (1,)", True, lambda a: a, lambda a: a, list),  # and torch.cat takes these
)


class Reading(NamedTuple):
    """One way to pass a rollout."""

    roles: dict[str, str]
    library: str
    layout: Layout
    longer_values: bool  # values have T + 1 rows
    longer_flags: bool  # flags have a row more, for the step before the rollout
    last_rows: bool  # what belongs to the last row has an axis of time
    flags: str  # their dtype
    flat: str = "TN"  # the order of results without axes
    ignored: tuple[str, ...] = ()  # gamma or gae_lambda, if the function takes it and has a number of its own

    @property
    def given(self) -> set[str]:
        return {*self.roles.values()}

    @property
    def takes(self) -> set[str]:
        """Return which of gamma and gae_lambda the function takes and uses."""
        taken = {"gamma" if role == "discounts" else role for role in self.given} & {"gamma", "gae_lambda"}
        return taken - {*self.ignored}

    @property
    def of_last(self) -> bool:
        """Return whether an argument has what follows the last row."""
        return bool(self.given & {"last_values", "next_values", *NEXT_FLAGS})

    @property
    def kind(self) -> Kind:
        """Return what the rollouts of the function must have."""
        given = self.given
        two = given & {"truncated", "not_truncated"} or (given & OF_BOTH and given & {"terminated", "discounts"})
        begins = {"starts", "not_starts"} & given and not given & {*NEXT_FLAGS} and not self.longer_flags
        envs = 2 if self.layout.each_env else 5  # 5: no result of many envs has as many rows, so its shape tells
        only_last = bool(given & {*NEXT_FLAGS}) and not given & ENDS
        return Kind(envs, 2 if two else int(only_last or bool(given & ENDS)), "mask" in given, bool(begins), only_last)

    def __str__(self) -> str:
        passed = ", ".join(name if name == role else f"{name} ({role})" for name, role in self.roles.items())
        notes = [f"; {NOTES[role].format(name)}" for name, role in self.roles.items() if role in NOTES]
        notes += ["; it is terminated[-1], and no other step ends an episode"] * self.kind.only_last
        own_row = self.given & {*FLAGS} - {"starts", "not_starts"}
        rows = f", flags with T + 1 rows{', of which step t has row t + 1' * bool(own_row)}" * self.longer_flags
        more = ", values with T + 1 rows" * self.longer_values + rows
        flags = f", flags as {self.flags}" * bool(self.given & {*FLAGS})
        return f"{passed}{''.join(notes)}; passed as {self.library} {self.layout.words}{more}{flags}"


def inner_readings(roles: dict[str, str], library: str, layout: Layout, longer: bool) -> Iterator[Reading]:
    """Yield the ways to pass a rollout in one layout, the most common first, without or with T + 1 rows.

    JAX reads the last row in place of one that does not exist, so there an error does not tell which it must be.
    """
    given, both = {*roles.values()}, (False, True)
    takes_flags = bool(given & {*FLAGS})
    for choices in itertools.product(
        both if "values" in given and "next_values" not in given else both[:1],
        both if takes_flags else both[:1],
        both if given & {"last_values", *NEXT_FLAGS} else both[:1],
        ("float32", "bool") if given & {*FLAGS, *NEXT_FLAGS, "mask"} else ("float32",),
    ):
        if not longer if library == "jax" else any(choices[:2]) == longer:
            yield Reading(roles, library, layout, *choices)


def libraries_of(function: Callable[..., Any]) -> list[str]:
    """Return the libraries whose arrays a function may take: first those that it, and what it calls, refer to."""
    used, waiting = set(), [function]
    for each in waiting:  # which grows
        with suppress(Exception):  # of what somebody else's objects do when they are looked at
            each = inspect.unwrap(getattr(each, "func", each))
            named = getattr(each, "__module__", None) or getattr(each, "__name__", "")
            used.add(package := str(each if isinstance(each, str) else named).partition(".")[0])
            if (inspect.isfunction(each) or inspect.ismethod(each)) and package not in ("numpy", "fastgae", *LIBRARIES):
                found = inspect.getclosurevars(each)
                names = (*found.globals.values(), *found.nonlocals.values(), *annotations(each).values())
                waiting += [one for one in names if all(one is not other for other in waiting)]
    loaded = [name for name in LIBRARIES if name in sys.modules]
    return [*(name for name in loaded if name in used), "numpy", *(name for name in loaded if name not in used)]


class Outputs(NamedTuple):
    """The results of a call."""

    arrays: dict[str, Array]  # of shape (T, N), or (T - 1, N)
    others: dict[str, str]  # what has another size, in words
    flat: bool  # some result has one axis for steps and envs
    written: tuple[str, ...]  # arguments that the function has changed


def called(function: Callable[..., Any], reading: Reading, rollout: Probe) -> Outputs:
    """Call a function with a rollout."""
    envs = rollout.rewards.shape[1]
    if reading.layout.each_env and envs > 1:
        alone = [called(function, reading, rollout.map(operator.itemgetter(np.s_[:, n : n + 1]))) for n in range(envs)]
        joined = {name: np.concatenate([each.arrays[name] for each in alone], 1) for name in alone[0].arrays}
        return alone[0]._replace(arrays=joined, flat=False)
    given = rollout.arguments(reading.longer_values, reading.longer_flags)
    passed = {name: converted(given[role], reading) for name, role in reading.roles.items()}
    before = {name: _array(each).copy() for name, each in passed.items()}
    named, positional = dict(passed), []
    for each in signature(function).parameters.values():
        if each.kind > each.POSITIONAL_OR_KEYWORD or each.name not in named:
            break
        positional.append(named.pop(each.name))  # because jax.vmap takes nothing else
    result = function(*positional, **named)
    written = tuple(name for name, each in passed.items() if not np.array_equal(_array(each), before[name], True))
    arrays, others, flat = {}, {}, False
    shape = rollout.rewards.shape
    for name, each in _items(result, shape):
        array = _array(each)
        if array.shape == (shape[0],) * 2 and shape[0] > shape[1] == 1:
            raise ValueError(f"{name} has shape (T, T), as if arrays of shape (T,) and (T, 1) were added")
        if array.dtype.kind == "f" and (held := _held(array, shape, reading.flat)) is not None:
            arrays[name] = held
            flat |= array.ndim == 1 and min(held.shape) > 1
        else:
            others[name] = _described(each, array)
    return Outputs(arrays, others, flat, written)


def converted(given: Any, reading: Reading) -> Any:
    """Return an argument as a reading passes it."""
    if not isinstance(given, np.ndarray):
        return given
    layout, by_env = reading.layout, given.ndim == 1
    array = layout.envs(given) if by_env and not reading.last_rows else layout.steps(np.atleast_2d(given))
    array = np.array(array, reading.flags if array.dtype == bool else None, order="C")[()]  # or a scalar, for Numba
    if reading.library != "numpy":
        module, name = COPIES[reading.library]
        array = getattr(importlib.import_module(module), name)(array)
    return array if by_env and layout.held in (list, tuple) else layout.held(array)


def _items(result: Any, shape: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Yield what a function returned, and its names. A list holds the rows of one array, or several results."""
    if isinstance(result, Mapping):
        yield from ((str(name), each) for name, each in result.items())
    elif isinstance(result, tuple) or (isinstance(result, list) and not _is_array(result, shape)):
        names = getattr(result, "_fields", [f"result[{number}]" for number in range(len(result))])
        yield from zip(names, result, strict=True)
    else:
        yield "result", result


def _is_array(given: list[Any], shape: tuple[int, int]) -> bool:
    steps, envs = shape
    return len(given) in (steps, steps - 1, envs, steps * envs) and _held(_array(given), shape, "TN") is not None


def _held(array: Array, shape: tuple[int, int], flat: str) -> Array | None:
    """Return a result as an array of shape (T, N), or (T - 1, N) if the last step gives none; None if it is neither."""
    steps, envs = shape
    sizes = [size for size in array.shape if size != 1]
    rows = array.size // envs
    if len(sizes) > 2 or rows * envs != array.size or rows - steps not in (-1, 0, 1):
        return None
    if len(sizes) == 2 and sizes not in ([rows, envs], [envs, rows]):
        return None
    time_first = sizes[0] == rows if len(sizes) == 2 else flat == "TN"
    held = array.reshape(rows, envs) if time_first else array.reshape(envs, rows).T
    return held[:steps].copy()  # the function may use its memory again


def _array(given: Any) -> Array:
    try:
        rows = isinstance(given, list | tuple)
        return np.stack([np.asarray(on_the_cpu(row)) for row in given]) if rows and given else on_the_cpu(given)
    except (TypeError, ValueError):
        return np.array(None)


def _described(given: Any, array: Array) -> str:
    if array.dtype.kind in "OUS":
        return "None" if given is None else type(given).__name__
    return f"{type(given).__name__} of shape {array.shape} and dtype {array.dtype}"
