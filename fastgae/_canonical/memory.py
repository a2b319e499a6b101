"""Convert a checked call to matrices of one layout and a Rollout, and the results to the caller's arrays."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastgae import _memory
from fastgae._call import CONSTANTS, ROLES, Array, Call, GAEResult, Role
from fastgae._canonical.arguments import NEXT_STEP
from fastgae._canonical.contract import Rollout

TERMINATED, TIME_AXIS, OUT = map(Call._fields.index, ("terminated", "time_axis", "out"))


def in_one_layout(call: Call) -> tuple[Call, "Layout"]:
    """Return a checked call with (T, N) matrices in the layout of rewards; ``Layout.restored`` takes the results back.

    Coefficients keep their shapes, because their products are cheapest before they are broadcast.
    """
    rewards, final = call.rewards, call.final_values
    layout = _layout_of(rewards.shape, rewards.strides, rewards.itemsize, call.time_axis)
    if final is not None and final.shape != rewards.shape:
        final = _memory.empty_like(rewards)
        final[call.truncated] = call.final_values
        call = call._replace(final_values=final)
    fields = list(call)
    for place, convert in CONVERSIONS:
        if (given := fields[place]) is not None:
            fields[place] = convert(layout, given)
    if call.terminated is None:
        fields[TERMINATED] = layout.constant(np.False_)
    fields[TIME_AXIS] = 0
    if call.out is not None:
        inputs = [array for array in fields if type(array) is np.ndarray]
        fields[OUT] = (layout.output(call.out[0], inputs), layout.output(call.out[1], inputs))
    return Call._make(fields), layout


def in_place(array: Array, mask: Array | None, time_axis: int) -> tuple[Array, Array | None, "Layout"]:
    """Return an array and a mask as (T, N) matrices in the layout of the array, without a copy where possible."""
    layout = _layout_of(array.shape, array.strides, array.itemsize, time_axis)
    return layout.matrix(array), None if mask is None else layout.matrix(mask), layout


def canonical_rollout(call: Call, layout: "Layout") -> Rollout:
    """Return the Rollout of a call whose arrays are matrices of this layout."""
    values, following, last, steps = call.values, call.next_values, call.last_values, layout.steps
    dtype = call.rewards.dtype
    if values is None:  # r - 0.0 and r + gamma (-0.0) are r, bit for bit
        values, following = layout.constant(dtype.type(0.0)), layout.constant(dtype.type(-0.0))
        last = np.full(layout.envs, -0.0, dtype)
    if following is None:
        following = values[1:]
    if last is None:
        last = following[steps - 1] if steps else np.empty(layout.envs, dtype)

    def coefficient(given: Any) -> Any:
        """Round float64 once, to the working dtype."""
        if isinstance(given, np.ndarray):
            return layout.coefficients(given.astype(dtype, copy=False))
        return dtype.type(given)

    advantages, returns = call.out or (layout.empty(dtype), layout.empty(dtype))
    return Rollout(
        call.rewards,
        values[:steps],
        following[: max(steps - 1, 0)],
        last,
        call.final_values,
        call.terminated,
        call.truncated,
        coefficient(call.gamma),
        coefficient(_discounted(call, call.gae_lambda)),
        advantages,
        returns,
        returns_gamma_lambda=None
        if call.returns_lambda is None
        else coefficient(_discounted(call, call.returns_lambda)),
        tail_lambda=coefficient(call.gae_lambda) if call.tail_normalized else None,
        mask=call.mask,
        mask_passes_values=call.mask is not None and call.next_values is None and call.autoreset != NEXT_STEP,
        carry_over=call.carry_over and call.mask is not None,
        last_advantages=call.last_advantages,
        ratios=call.ratios,
        constants=None if call.ratios is None else _constants(call, dtype),
    )


def _discounted(call: Call, decay: Any) -> Any:
    """Return gamma times a decay. A gamma of 1 changes no number, so the decays of ``reverse_scan`` are not copied."""
    return decay if type(call.gamma) is float and call.gamma == 1.0 else call.gamma * decay


def _constants(call: Call, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    with np.errstate(over="ignore"):  # a clip beyond the working dtype becomes infinity, which clips nothing
        return tuple(dtype.type(getattr(call, name)) for name in CONSTANTS)


class Layout(NamedTuple):
    """The order of axes in which arrays of rewards' shape become (T, N) matrices, and the axis of unit stride."""

    axes: tuple[int, ...]  # time first, then the others from the outermost in memory to the innermost
    lengths: tuple[int, ...]  # of these axes
    places: tuple[int, ...]  # where each axis of rewards stands among these axes
    envs: int
    env_major: bool

    @property
    def steps(self) -> int:
        return self.lengths[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of rewards."""
        return tuple(self.lengths[place] for place in self.places)

    def matrix(self, array: Array) -> Array:
        """Return an array as (T, N) in this layout: a view where the strides allow it, or else a copy."""
        matrix = self.merged(array)
        return matrix if self.fits(matrix) else np.array(matrix, order="F" if self.env_major else "C")

    def constant(self, number: Any) -> Array:
        """Return a (T, N) matrix of one number, which takes the memory of one row or column."""
        shape = (self.steps, 1) if self.env_major else (1, self.envs)
        return np.broadcast_to(np.full(shape, number), (self.steps, self.envs))

    def coefficients(self, array: Array) -> Array:
        """Return an array that broadcasts to rewards as (T, N), with stride 0 where it is broadcast."""
        matrix = self.merged(np.broadcast_to(array, self.shape))
        stride = matrix.strides[0 if self.env_major else 1]
        fits = stride in (0, matrix.itemsize) and matrix.flags.aligned
        return matrix if fits else np.array(matrix, order="F" if self.env_major else "C")

    def row(self, array: Array) -> Array:
        """Return an array without time as (N,), contiguous."""
        if array.ndim != 1:
            time, *others = self.axes
            array = array.transpose([axis - (axis > time) for axis in others]).reshape(self.envs)
        return array if array.flags.c_contiguous and array.flags.aligned else array.copy()

    def in_caller_order(self, row: Array) -> Array:
        """Return (N,) numbers in the order that the envs have in rewards, read in C order."""
        if len(self.axes) < 3:
            return row
        others = [axis for axis in self.axes if axis != self.axes[0]]
        return (
            row.reshape(self.lengths[1:]).transpose([others.index(axis) for axis in sorted(others)]).reshape(self.envs)
        )

    def output(self, array: Array | None, inputs: Sequence[Array]) -> Array | None:
        """Return the matrix to fill: the array itself, or new memory if its layout differs or it overlaps an input."""
        if array is None:
            return None
        if not _merge(array.shape, array.strides, self.axes[1:]) or not self.fits(matrix := self.merged(array)):
            return self.empty(array.dtype)
        for given in inputs:
            if np.may_share_memory(array, given):
                return self.empty(array.dtype)
        return matrix

    def restored(self, filled: GAEResult, call: Call) -> GAEResult:
        """Return filled matrices as the results of a call: in the caller's outputs, or in new arrays like rewards."""
        if call.out is None:
            return filled if self.axes == (0, 1) else GAEResult(*(self.like(call.rewards, matrix) for matrix in filled))
        for array, matrix in zip(call.out, filled, strict=True):
            if array is not None and array is not matrix and not np.may_share_memory(array, matrix):
                array[...] = self.split(matrix)
        return GAEResult(*call.out)

    def like(self, rewards: Array, matrix: Array) -> Array:
        """Return a matrix in the shape and memory order of rewards."""
        array, split = _memory.empty_like(rewards), self.split(matrix)
        if array.strides == split.strides:
            return split
        array[...] = split
        return array

    def empty(self, dtype: np.dtype[Any]) -> Array:
        return _memory.empty((self.steps, self.envs), dtype, "F" if self.env_major else "C")

    def merged(self, array: Array) -> Array:
        """Return an array as (T, N): a view where the strides of the merged axes allow it."""
        if self.axes == (0, 1):
            return array
        return array.transpose(self.axes).reshape(array.shape[self.axes[0]], self.envs)

    def split(self, matrix: Array) -> Array:
        """Return a view of a matrix in the shape of rewards."""
        return matrix if self.axes == (0, 1) else matrix.reshape(self.lengths).transpose(self.places)

    def fits(self, matrix: Array) -> bool:
        unit_axis = 0 if self.env_major else 1
        unit = matrix.strides[unit_axis] == matrix.itemsize or matrix.shape[unit_axis] <= 1
        return unit and matrix.flags.aligned


@functools.lru_cache  # because a training run asks for the same layout again and again
def _layout_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, time_axis: int) -> Layout:
    # Outermost first, so that the axes merge without a copy wherever one memory order allows it.
    others = sorted({*range(len(shape))} - {time_axis}, key=lambda axis: (-abs(strides[axis]), axis))
    axes = (time_axis, *others)
    lengths, places = tuple(shape[axis] for axis in axes), tuple(axes.index(axis) for axis in range(len(axes)))
    steps, envs = lengths[0], math.prod(lengths[1:])
    step = strides[time_axis]
    env = next((strides[axis] for axis in reversed(others) if shape[axis] != 1), itemsize)
    # Arrays without unit stride are copied, which is cheapest in the order that their memory has.
    by_env = steps > 1 and env != itemsize and (step == itemsize or abs(step) < abs(env))
    return Layout(axes, lengths, places, envs, envs == 1 or (by_env and _merge(shape, strides, others)))


def _merge(shape: tuple[int, ...], strides: tuple[int, ...], axes: Sequence[int]) -> bool:
    """Return whether these axes, given outermost first, can be read as one axis with one stride."""
    if len(axes) < 2:
        return True
    long = [axis for axis in axes if shape[axis] != 1]
    return all(strides[outer] == strides[inner] * shape[inner] for outer, inner in itertools.pairwise(long))


_OF_ROLES = {Role.STEPS: Layout.matrix, Role.STEP_FLAGS: Layout.matrix, Role.ENVS: Layout.row}
# The arguments that are converted to the layout: the place in a Call, and the method that converts it.
CONVERSIONS = [(place, _OF_ROLES[ROLES[name]]) for place, name in enumerate(Call._fields) if ROLES[name] in _OF_ROLES]
