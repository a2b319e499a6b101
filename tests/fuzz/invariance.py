"""Calls that must give the same bits as a call: the same one in plain memory, and one for each half of its envs.

They need no equation, so they also check functions that the oracle does not know.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fastgae._call import ROLES

from .calls import PER_ENV, Call, Given
from .layouts import LAYOUTS


def in_plain_memory(call: Call) -> Call:
    """Return the call with every array contiguous, in C order, without outputs, and on one thread."""
    arguments = {name: _plain(given) for name, given in call.arguments.items()}
    return replace(call, arguments=arguments, out=None, how=dict.fromkeys(call.how, 1))


def halves(call: Call) -> Iterator[tuple[tuple[slice, ...], Call]]:
    """Yield the index of two halves of the envs, and the call of each; nothing where envs depend on each other."""
    shape = call.shape
    others = [axis for axis, n in enumerate(shape) if axis != call.time_axis and n > 1]
    mixed = {"normalize"} & {*call.arguments} or {"by", "groups"} & {*call.parameters()}
    if not others or mixed:
        return
    axis = others[-1]
    for part in (slice(0, shape[axis] // 2), slice(shape[axis] // 2, None)):
        index = tuple(part if each == axis else slice(None) for each in range(len(shape)))
        yield index, replace(call, arguments={name: _part(call, name, index) for name in call.arguments}, out=None)


def _plain(given: Any) -> Any:
    if not isinstance(given, Given):
        return given
    return Given(np.array(given.plain, given.dtype, order="C"), LAYOUTS["c"])


def _part(call: Call, name: str, index: tuple[slice, ...]) -> Any:
    """Return the part of an argument that belongs to these envs."""
    given = call.arguments[name]
    if not isinstance(given, Given):
        return given
    array = given.plain
    if name == "final_values" and array.shape != call.shape:
        cut = call.plain("truncated") != 0
        chosen = np.zeros(cut.shape, bool)
        chosen[index] = True
        one_by_one = _plain(given)  # with the dtype of a list, which an empty list would not have
        return replace(one_by_one, plain=one_by_one.plain[chosen[cut]])
    if ROLES[name] in PER_ENV and array.ndim < len(index):
        index = index[: call.time_axis] + index[call.time_axis + 1 :]
    # An array that is the same along some axes has length 1 there, or lacks them at its end.
    picked = tuple(slice(None) if n == 1 else part for part, n in zip(index, array.shape, strict=False))
    return replace(given, plain=array[picked])
