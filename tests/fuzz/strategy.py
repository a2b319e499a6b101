"""The one strategy: right calls, and calls that are changed in one or two places, of which most must be refused.

hypothesis draws the structure: which arguments there are, their shapes, dtypes and layouts, outputs and mistakes. The
elements come from one drawn seed, because to draw each of them would take longer than the call.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastgae._call import ROLES, Role
from support.functions import FUNCTIONS

from .calls import OUTSIDE, Alias, Call, Given, Over
from .layouts import LAYOUTS
from .right import FLAGS, NUMBERS, SETTINGS, Draws, Frame, alone, right_call

Mistake = Callable[[Draws, Call, Frame], str]  # it changes the call and says how; "": it changed nothing


@st.composite
def calls(draw: Callable[[Any], Any], functions: Sequence[str] = FUNCTIONS) -> Call:
    """Return a call of one of these functions. One in three has mistakes, which may make no difference."""
    draws = Draws(draw, draw(st.integers(0, 2**32 - 1)))
    call, frame = right_call(draws, functions)
    if draws.chance(35):
        for _ in range(1 + draws.chance(15)):
            what = draws.pick(MISTAKES)(draws, call, frame)
            call.wrong += [what] * bool(what)
    return call


def _one_of(draws: Draws, call: Call, *, arrays: bool) -> str:
    """Return the name of an argument that is given; "" if there is none."""
    given = call.arguments.items()
    names = [name for name, each in given if isinstance(each, Given) or not arrays]
    return draws.pick(names) if names else ""


def _put(call: Call, name: str, given: Any) -> None:
    """Change an argument. Outputs in its memory get memory of their own."""
    call.arguments[name] = given
    if any(isinstance(each, Alias | Over) for each in (call.out if isinstance(call.out, list) else [call.out])):
        call.out = None


def _of(given: Given, plain: np.ndarray) -> Given:
    return Given(plain, given.layout)


def another_value(draws: Draws, call: Call, frame: Frame) -> str:
    alone = [name for name, each in call.arguments.items() if not isinstance(each, Given)]
    name = draws.pick(alone) if alone and draws.chance(50) else _one_of(draws, call, arrays=False)
    value = draws.pick((None, 2.0, -1.0, math.nan, 7, 0.5, np.float16(0.5), True, "next", 1j, 1 << 70, {}))
    _put(call, name, value)
    return f"{name} is {value!r}"


def left_out(draws: Draws, call: Call, frame: Frame) -> str:
    name = _one_of(draws, call, arrays=False)
    _put(call, name, None)
    del call.arguments[name]
    return f"without {name}"


def added(draws: Draws, call: Call, frame: Frame) -> str:
    takes = call.parameters()
    names = [name for name in takes if name not in (*call.arguments, "out", *OUTSIDE)]
    if not names:
        return ""
    name, rng = draws.pick(names), draws.rng("added")
    shape = frame.shape_of(name)
    if ROLES[name] in NUMBERS:
        given = Given(rng.random(shape).astype(frame.dtype), LAYOUTS["c"])
    elif ROLES[name] in FLAGS:
        given = Given(rng.random(shape) < 0.5, LAYOUTS["c"])
    else:
        given = SETTINGS[name](draws, frame) if name in SETTINGS else alone(draws, takes, [name], frame)[name]
    _put(call, name, given)
    return f"with {name}"


def _longer(array: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate([array, array.take([0], axis)], axis) if array.shape[axis] else np.ones(array.shape)


SHAPES: tuple[Callable[[np.ndarray, int], np.ndarray], ...] = (
    _longer,
    lambda array, axis: array.take(range(1, array.shape[axis]), axis),
    lambda array, axis: array.take(range(min(1, array.shape[axis])), axis),
    lambda array, axis: array.take(0, axis) if array.shape[axis] else array,
    lambda array, axis: np.array(array.T),
    lambda array, axis: np.expand_dims(array, axis),
    lambda array, axis: array[..., np.newaxis],
    lambda array, axis: array.reshape(-1),
)


def of_one_array(change: Callable[[Draws, Given, Role], tuple[Any, str] | None]) -> Mistake:
    """Return a mistake that changes one array; what it returns takes the array's place, and says what is wrong."""

    def mistake(draws: Draws, call: Call, frame: Frame) -> str:
        name = _one_of(draws, call, arrays=True)
        changed = change(draws, call.arguments[name], ROLES[name]) if name else None
        if changed is None:
            return ""
        _put(call, name, changed[0])
        return f"{name} {changed[1]}"

    return mistake


@of_one_array
def another_shape(draws: Draws, given: Given, role: Role) -> tuple[Any, str] | None:
    if not given.plain.ndim:
        return None
    plain = draws.pick(SHAPES)(given.plain, draws.below(given.plain.ndim))
    return _of(given, plain), f"has shape {plain.shape} in place of {given.plain.shape}"


@of_one_array
def another_dtype(draws: Draws, given: Given, role: Role) -> tuple[Any, str] | None:
    dtype = draws.pick(("O", "c8", "U3", "m8[s]", "f2", "i4", "f8", "?"))
    with np.errstate(all="ignore"):
        changed = given.plain.astype("i8" if dtype == "m8[s]" else dtype).astype(dtype)
    return changed if changed.dtype.kind in "OUm" else _of(given, changed), f"has dtype {dtype}"


@of_one_array
def another_element(draws: Draws, given: Given, role: Role) -> tuple[Any, str] | None:
    """Change one element of an array to something that its role excludes, or nearly so."""
    if not given.plain.size:
        return None
    array = np.array(given.plain)
    value: Any = draws.pick((2, -1, 0.5, math.nan, 1, 0))
    if role in FLAGS and array.dtype == bool:
        array = array.astype(draws.pick((np.float32, np.int8, bool)))
    if array.dtype.kind in "biu" and value != value:
        value = 3
    place = draws.pick((-1, 0, draws.below(array.size)))
    with np.errstate(all="ignore"):
        array.flat[place] = np.array(value).astype(array.dtype)
    return _of(given, array), f"holds {value}"


def another_flag(draws: Draws, call: Call, frame: Frame) -> str:
    """Change a flag in the last row. So there are more or fewer final values, or an episode ends or goes on."""
    names = [
        name
        for name, given in call.arguments.items()
        if ROLES[name] is Role.STEP_FLAGS and isinstance(given, Given) and given.plain.size and given.plain.ndim
    ]
    if not names:
        return ""
    name = draws.pick(names)
    array = np.array(call.arguments[name].plain) != 0
    rows = np.moveaxis(array, min(frame.axis, array.ndim - 1), 0)
    place = draws.below(rows[-1].size)
    rows[-1].flat[place] ^= True
    if rows[-1].ndim == 0:
        rows[-1] ^= True
    _put(call, name, _of(call.arguments[name], array))
    return f"a flag of {name} is another"


def other_threads(draws: Draws, call: Call, frame: Frame) -> str:
    if "num_threads" not in call.parameters():
        return ""
    call.how["num_threads"] = given = draws.pick((0, -1, 1.5, True, "1", 1 << 70, np.int64(2), None))
    return f"num_threads is {given!r}"


OUTPUTS: tuple[Callable[[Given], Any], ...] = (
    lambda good: good.plain.tolist(),
    lambda good: 7,
    lambda good: None,
    lambda good: replace(good, kind="readonly"),
    lambda good: _of(good, good.plain.astype(np.float32 if good.plain.dtype == np.float64 else np.float64)),
    lambda good: _of(good, good.plain.astype(good.plain.dtype.newbyteorder())),
    lambda good: _of(good, np.full((*good.plain.shape, 1), 7, good.plain.dtype)),
    lambda good: _of(good, np.array(good.plain.T)),
    lambda good: _of(good, np.broadcast_to(good.plain[:1], good.plain.shape)),
    lambda good: [good, good],
)


def another_output(draws: Draws, call: Call, frame: Frame) -> str:
    if "out" not in call.parameters():
        return ""
    good = Given(np.full(frame.shape, 7, call.working_dtype()), LAYOUTS["c"])
    change, place = draws.pick(OUTPUTS), draws.below(5)
    try:
        bad = change(good)
    except ValueError:  # no element to repeat
        return ""
    call.out = [[bad, good], [good, bad], bad, [good, good, bad], [good, good]][place]
    return "another output"


MISTAKES = (
    *(another_value, another_value, left_out, left_out, added, added, another_shape, another_shape),
    *(another_dtype, another_element, another_flag, another_flag, other_threads, another_output),
)
