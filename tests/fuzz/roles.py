"""One argument of a call, drawn by its role in fastgae/_call.py."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any

import numpy as np

from fastgae._call import ROLES, Role
from support.functions import allows_none, required

from . import contents
from .calls import PER_ENV, Given
from .choices import Choices

REAL = (np.float32, np.float32, np.float32, np.float64, np.float64, np.float16)


@dataclass(frozen=True)
class Frame:
    """The shapes that the roles of a call refer to, and the dtype of most of its numbers."""

    shape: tuple[int, ...]
    axis: int
    dtype: Any
    lengths: tuple[int, ...] | None = None  # of packed sequences, each of which counts as an env

    @property
    def envs(self) -> tuple[int, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :] if self.lengths is None else (len(self.lengths),)

    @property
    def one_longer(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], self.shape[self.axis] + 1, *self.shape[self.axis + 1 :])

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self.envs if ROLES[name] in PER_ENV else self.shape

    def shorter(self, choose: Choices, name: str) -> tuple[int, ...]:
        """Return a shape for an argument that is not the first: often its own, or one that says the same."""
        shape = self.shape_of(name)
        if self.lengths is not None or choose.chance(80):
            return shape
        if ROLES[name] in PER_ENV:
            return (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        if ROLES[name] is not Role.STEP_FLAGS:
            return shape
        kept = shape[: max(self.axis + 1, 2) + choose.below(3)]
        return tuple(1 if axis != self.axis and choose.chance(35) else n for axis, n in enumerate(kept))


def frame_of(choose: Choices, takes: Iterable[str]) -> Frame:
    """Return a frame for a function that takes these parameters."""
    dtype = choose.pick(REAL)
    if any(ROLES[name] is Role.BOUNDARIES for name in takes):
        lengths = [contents.length(choose) * (not choose.chance(10)) for _ in range(choose.below(9))]
        if choose.chance(5):
            lengths += [1 + choose.below(60) for _ in range(200)]
        return Frame((sum(lengths),), 0, dtype, tuple(lengths))
    style, rank = choose.below(200), choose.pick((2, 2, 2, 2, 1, 1, 3, 4))
    steps, envs = contents.length(choose), contents.length(choose)
    if style >= 196:
        steps, envs = choose.pick(contents.LONG), 1 + choose.below(4)
    elif style >= 193:
        steps, envs = 1 + choose.below(6), choose.pick(contents.LONG)
    elif style == 192:
        steps, envs = 64 + choose.below(500), 64 + choose.below(900)
    elif steps * envs > 8000:
        envs = 8000 // steps
    if rank == 1:
        return Frame((steps,), 0, dtype)
    others = [envs]
    for _ in range(rank - 2):
        split = choose.pick((1, 2, 3))
        others = [split, *others[:-1], others[-1] // split]
    axis = choose.below(rank) if "time_axis" in takes else 0
    return Frame((*others[:axis], steps, *others[axis:]), axis, dtype)


def handed_over(choose: Choices, plain: np.ndarray, *, writable: bool = False) -> Given:
    """Return the array in some memory, or as a list, in the other byte order, or read-only."""
    style = choose.below(100) if choose.order is None else 0
    if not writable and style == 99 and plain.size and plain.ndim and plain.dtype.kind != "b":
        return Given(plain, contents.place(choose, plain.ndim), "list")
    if not writable and style == 98 and plain.itemsize > 1:
        plain = plain.astype(plain.dtype.newbyteorder("S"))
    kind = "readonly" if not writable and style >= 95 else "array"
    return Given(plain, contents.place(choose, plain.ndim), kind)


def perhaps_bfloat16(choose: Choices, given: Given) -> Given:
    """Return some arrays of float32 as bfloat16: their numbers without the lower 16 bits, in the same place."""
    plain = given.plain
    fits = given.kind == "array" and plain.dtype == np.float32 and plain.dtype.isnative and plain.ndim
    if not fits or 0 in plain.strides or not choose.chance(8):
        return given
    return replace(given, plain=(plain.view(np.uint32) & 0xFFFF0000).view(np.float32), kind="bfloat16")


def number_array(choose: Choices, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if choose.order is None and choose.chance(4):
        dtype = choose.pick((np.float64, np.float32, np.float16, np.int64, np.int16, np.uint8))
    return contents.broadcast(choose, contents.numbers(choose, shape, dtype))


def flag_array(choose: Choices, shape: tuple[int, ...]) -> np.ndarray:
    return contents.broadcast(choose, contents.truths(choose, shape))


def coefficient(choose: Choices, frame: Frame, parameter: Parameter) -> Any:
    """Return a number in [0, 1] of any type, or an array of such numbers that broadcasts to the frame."""
    number = choose.pick((0.99, 0.95, 1.0, 0.0, 0.5, 0.999, 1e-3)) if choose.chance(80) else choose.below(1001) / 1000
    if not choose.chance(35):
        return choose.pick((float, float, float, float, np.float32, np.float64, round, np.asarray))(number)
    per_sequence = frame.lengths is not None and choose.chance(50)
    shape = (*frame.envs, 1) if per_sequence else _broadcasting(choose, frame.shape)
    array = contents.rng_of(choose).random(shape)
    array[contents.rng_of(choose).random(shape) < 0.1] = choose.pick((1.0, 0.0))
    return handed_over(choose, array.astype(choose.pick((np.float64, np.float32))))


def factors(choose: Choices, frame: Frame, parameter: Parameter) -> Any:
    """Return any number, or an array of them that broadcasts to the frame."""
    if choose.chance(30):
        return choose.pick((0.5, 1.0, 0.0, -2))
    return handed_over(choose, number_array(choose, _broadcasting(choose, frame.shape), frame.dtype))


def constant(choose: Choices, frame: Frame, parameter: Parameter) -> Any:
    """Return a number in [0, 1] or the default; any number >= 0 where None means that there is no limit."""
    usual = () if required(parameter) else (parameter.default,)
    return choose.pick((*usual, 1.0, 0.3, 0.0, 1, *((2.0, math.inf, None) if allows_none(parameter) else ())))


def boundaries(choose: Choices, frame: Frame, parameter: Parameter) -> Any:
    starts = np.concatenate([[0], np.cumsum(frame.lengths)])
    return handed_over(choose, starts.astype(choose.pick((np.int64, np.int32, np.uint64))))


def _broadcasting(choose: Choices, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if choose.chance(35) else n for n in shape)
