"""Convert a checked call to matrices of one layout, and the results to the caller's arrays."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import ABSENT, NEW, NEXT_STEP, ROLES, Array, Call, GAEResult, Role
from fastgae._equation.arrays import with_next_values
from fastgae._support import memory


def in_one_layout(call: Call) -> tuple[Call, "Layout", GAEResult[Any]]:
    """Return a checked call with (T, N) matrices in the layout of rewards, and the arrays for its results.

    ``out`` of the new call holds the matrices to fill. ``Layout.restored`` takes them back to the arrays.
    """
    rewards, final = call.rewards, call.final_values
    layout = _layout_of(rewards.shape, rewards.strides, rewards.itemsize, call.time_axis)
    if final is not None and final.shape != rewards.shape:
        final = memory.empty_like(rewards)
        final[call.truncated] = call.final_values
        call = call._replace(final_values=final)
    if call.autoreset == NEXT_STEP:
        call = with_next_values(call)
    fields = list(call)
    for place, convert in CONVERSIONS:
        given = fields[place]
        if not (given is None or given is ABSENT or type(given) is float):
            fields[place] = convert(layout, given)
    results = GAEResult(*(memory.empty_like(rewards) if array is NEW else array for array in call.out))
    # New memory overlaps no input, and to ask NumPy that takes microseconds.
    is_new = all(array is NEW for array in call.out)
    inputs = () if is_new else tuple(array for array in fields if type(array) is np.ndarray)
    matrices = tuple(layout.output(array, inputs) for array in results)
    fields[TIME_AXIS], fields[OUT] = 0, matrices
    return Call._make(fields), layout, results


def in_place(array: Array, mask: Array | None, time_axis: int) -> tuple[Array, Array | None, "Layout"]:
    """Return an array and a mask as (T, N) matrices in the layout of the array, without a copy where possible."""
    layout = _layout_of(array.shape, array.strides, array.itemsize, time_axis)
    return layout.matrix(array), None if mask is None else layout.matrix(mask), layout


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

    def matrix(self, array: Array) -> Array:
        """Return an array as (T, N) in this layout: a view where the strides allow it, or else a copy."""
        matrix = self.merged(array)
        return matrix if self.fits(matrix) else np.array(matrix, order="F" if self.env_major else "C")

    def factors(self, array: Array) -> Array:
        """Return an array whose axes are those of rewards, or of length 1, as (T, N), (1, N), (T, 1) or (1, 1)."""
        if not array.flags.aligned:
            array = array.copy()
        steps, *others = array.transpose(self.axes).shape
        if all(length == 1 for length in others):
            return array.reshape(steps, 1)
        if len(others) == 1:
            return array.transpose(self.axes)
        return np.broadcast_to(array.transpose(self.axes), (steps, *self.lengths[1:])).reshape(steps, self.envs)

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
        array = np.asarray(array)  # of a subclass, such as np.matrix, whose methods give other shapes
        if not _merge(array.shape, array.strides, self.axes[1:]) or not self.fits(matrix := self.merged(array)):
            return self.empty(array.dtype)
        for given in inputs:
            if np.may_share_memory(array, given):
                return self.empty(array.dtype)
        return matrix

    def restored(self, matrices: Sequence[Array | None], results: GAEResult[Any]) -> GAEResult[Any]:
        """Return the results, which get the numbers of filled matrices that are not their own memory."""
        for array, matrix in zip(results, matrices, strict=True):
            if matrix is not None and array is not matrix and not np.may_share_memory(array, matrix):
                array[...] = self.split(matrix)
        return results

    def empty(self, dtype: np.dtype[Any]) -> Array:
        return memory.empty((self.steps, self.envs), dtype, "F" if self.env_major else "C")

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


_OF_ROLES = {
    Role.STEPS: Layout.matrix,
    Role.STEP_FLAGS: Layout.matrix,
    Role.ENVS: Layout.row,
    Role.COEFFICIENT: Layout.factors,
}
TIME_AXIS, OUT = Call._fields.index("time_axis"), Call._fields.index("out")
# The arguments that are converted to the layout: the place in a Call, and the method that converts it.
CONVERSIONS = [
    (place, _OF_ROLES[role]) for place, name in enumerate(Call._fields) if (role := ROLES[name]) in _OF_ROLES
]
