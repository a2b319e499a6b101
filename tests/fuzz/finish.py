"""The end of a random call: outputs, a number of threads, and sometimes a mistake."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgae._call import ROLES, Role
from support.functions import gives_two

from .calls import Alias, Call, Given
from .choices import Choices
from .memory import Place
from .roles import handed_over


def finish(choose: Choices, call: Call) -> None:
    """Add outputs and a number of threads where the function takes them, and break one call in twenty."""
    takes = call.parameters()
    if "out" in takes and choose.chance(50):
        call.out = outputs(choose, call, 2 if gives_two(call.function) else 1)
    if "num_threads" in takes and choose.chance(60):
        call.how["num_threads"] = choose.pick((1, 2, 3, 7, 64))
    if choose.chance(5):
        _break(choose, call)


def outputs(choose: Choices, call: Call, count: int) -> list[Given | Alias | None]:
    """Return arrays to fill, in new memory or in the memory of inputs. One of two may be missing."""
    shape, dtype = call.first.plain.shape, call.working_dtype()
    empty = np.full(shape, np.nan, dtype)
    out: list[Given | Alias | None] = [handed_over(choose, empty, writable=True) for _ in range(count)]
    if choose.chance(20):
        axes, in_time = tuple(range(len(shape))), tuple(axis == call.time_axis for axis in range(len(shape)))
        out = [Given(empty, Place(axes, (0,) * len(axes), in_time), "array") for _ in range(count)]
    fillable = [name for name in call.arguments if ROLES[name] is Role.STEPS and _fillable(call, name)]
    if fillable and choose.chance(25):
        first = choose.below(len(fillable))
        for i, name in enumerate([*fillable[first:], *fillable[:first]][:count]):
            out[i] = Alias(name, _first_or_last_steps(choose, call, name))
    if count == 2 and choose.chance(25) and "normalize" not in call.arguments:
        out[choose.below(2)] = None
    elif count == 2 and choose.chance(5):
        out[1] = None
    return out


def _first_or_last_steps(choose: Choices, call: Call, name: str) -> tuple[slice, ...]:
    """Return the index of as many steps of an input as there are steps to fill, sometimes backwards."""
    shape, time = call.first.plain.shape, call.time_axis
    longer = call.arguments[name].plain.shape[time] > shape[time]
    if not longer and choose.chance(20):
        return (slice(None, None, -1),) * len(shape)
    steps = slice(1, None) if longer and choose.chance(50) else slice(0, shape[time])
    return tuple(steps if axis == time else slice(None) for axis in range(len(shape)))


def _fillable(call: Call, name: str) -> bool:
    given = call.arguments.get(name)
    if not isinstance(given, Given) or given.kind != "array" or given.plain.dtype != call.working_dtype():
        return False
    shape, longer = list(call.first.plain.shape), list(given.plain.shape)
    if len(shape) != len(longer):  # final values, one per truncated step
        return False
    longer[call.time_axis] = min(longer[call.time_axis], shape[call.time_axis])
    return longer == shape and not any(
        stride == 0 and n > 1 for stride, n in zip(given.plain.strides, given.plain.shape, strict=True)
    )


def _break(choose: Choices, call: Call) -> None:
    """Make one argument wrong. Every backend must refuse the call in the same words, or give the same answer."""
    name = choose.pick([*call.arguments])
    given = call.arguments[name]
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("None", lambda: None),
        ("a number", lambda: choose.pick((2.0, -1.0, math.nan, 7, 0.5))),
        ("text", lambda: "next"),
    ]
    if isinstance(given, Given):
        array = given.plain
        wrong += [
            ("left out", lambda: _LEFT_OUT),
            ("another rank", lambda: handed_over(choose, array[..., np.newaxis].copy())),
            ("objects", lambda: array.astype(object)),
            ("twos", lambda: handed_over(choose, np.full(array.shape, 2, choose.pick((np.float32, np.int32))))),
        ]
        if array.ndim:
            wrong.append(("one more", lambda: handed_over(choose, np.concatenate([array, array[:1]]))))
    what, value = choose.pick(wrong)
    made = value()
    if made is _LEFT_OUT:
        del call.arguments[name]
    else:
        call.arguments[name] = made
    call.broken = f"{name}: {what}"


_LEFT_OUT = object()
