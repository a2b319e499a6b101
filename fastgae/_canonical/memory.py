"""Arguments -> matrices of one layout -> a Rollout, and the results back to what the caller asked for."""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastgae._canonical.contract import Arguments, Array, GAEResult, Options, Rollout, Scalar


def in_one_layout(given: Arguments) -> tuple[Arguments, "Layout"]:
    """The same call on (T, N) matrices in the layout of rewards; Layout.restored makes of them what was asked for."""
    rewards, final = given.rewards, given.final_values
    layout = _layout_of(rewards.shape, rewards.strides, rewards.itemsize, given.time_axis)
    if final is not None and final.shape != rewards.shape:
        final = np.empty_like(rewards)
        final[given.truncated] = given.final_values
    inputs = (
        layout.matrix(rewards),
        None if given.values is None else layout.matrix(given.values),
        layout.constant(np.False_) if given.terminated is None else layout.matrix(given.terminated),
        None if given.truncated is None else layout.matrix(given.truncated),
        None if given.last_values is None else layout.row(given.last_values),
        None if given.next_values is None else layout.matrix(given.next_values),
        None if final is None else layout.matrix(final),
    )
    options = None if given.options is None else _options_in(layout, given.options)
    taken = inputs if options is None else (*inputs, *options)
    out = given.out and (layout.output(given.out[0], taken), layout.output(given.out[1], taken))
    return Arguments(*inputs, given.gamma, given.gae_lambda, 0, out, options), layout


def in_place(array: Array, mask: Array | None, time_axis: int) -> tuple[Array, Array | None, "Layout"]:
    """An array, its own memory where that will do, and a mask as matrices of one layout."""
    layout = _layout_of(array.shape, array.strides, array.itemsize, time_axis)
    return layout.matrix(array), None if mask is None else layout.matrix(mask), layout


def _options_in(layout: "Layout", given: Options) -> Options:
    def coefficient(number_or_array: Any) -> Any:
        return layout.coefficients(number_or_array) if isinstance(number_or_array, np.ndarray) else number_or_array

    return given._replace(
        gamma=coefficient(given.gamma),
        gamma_lambda=coefficient(given.gamma_lambda),
        returns_gamma_lambda=coefficient(given.returns_gamma_lambda),
        tail_lambda=coefficient(given.tail_lambda),
        mask=None if given.mask is None else layout.matrix(given.mask),
        last_advantages=None if given.last_advantages is None else layout.row(given.last_advantages),
        ratios=None if given.ratios is None else layout.matrix(given.ratios),
    )


def canonical_rollout(matrices: Arguments, layout: "Layout") -> Rollout:
    """V' becomes that of all steps but the last, and that of the last."""
    rewards, values, terminated, truncated, last, following, final, gamma, gae_lambda, _, out, options = matrices
    steps, dtype = layout.steps, rewards.dtype
    if values is None:  # r - 0.0 and r + gamma (-0.0) are r, bit for bit
        values, following = layout.constant(dtype.type(0.0)), layout.constant(dtype.type(-0.0))
        last = np.full(layout.envs, -0.0, dtype)
    if following is None:
        following = values[1:]
    if last is None:
        last = following[steps - 1] if steps else np.empty(layout.envs, dtype)
    rollout = Rollout(
        rewards,
        values[:steps],
        following[: max(steps - 1, 0)],
        last,
        final,
        terminated,  # type: ignore[arg-type]  # in one layout, there is one
        truncated,
        dtype.type(math.nan if options else gamma),
        dtype.type(math.nan if options else gamma * gae_lambda),
        *(out or (layout.empty(dtype), layout.empty(dtype))),
    )
    return rollout if options is None else _with_options(rollout, options)


def _with_options(rollout: Rollout, given: Options) -> Rollout:
    rounded = rollout.rewards.dtype.type

    def coefficient(number_or_array: Any) -> Any:
        return rounded(number_or_array) if isinstance(number_or_array, float) else number_or_array

    return rollout._replace(
        gamma=coefficient(given.gamma),
        gamma_lambda=coefficient(given.gamma_lambda),
        returns_gamma_lambda=coefficient(given.returns_gamma_lambda),
        tail_lambda=coefficient(given.tail_lambda),
        mask=given.mask,
        mask_passes_values=given.mask_passes_values,
        last_advantages=given.last_advantages,
        ratios=given.ratios,
        constants=None if given.clips is None else _rounded_constants(given.clips, rounded),
    )


def _rounded_constants(given: Iterable[float], rounded: Any) -> tuple[Scalar, ...]:
    with np.errstate(over="ignore"):  # a number beyond the working dtype becomes infinity, which clips nothing
        return tuple(map(rounded, given))


class Layout(NamedTuple):
    """How arrays of rewards' shape become (T, N) matrices, and back: one order of axes, and one unit stride."""

    axes: tuple[int, ...]  # time first, then as the envs are in memory
    lengths: tuple[int, ...]  # of these axes
    places: tuple[int, ...]  # of rewards' axes among these
    envs: int
    env_major: bool

    @property
    def steps(self) -> int:
        return self.lengths[0]

    def matrix(self, array: Array) -> Array:
        """(T, N) in this layout: a view where that will do."""
        matrix = self.merged(array)
        return matrix if self.fits(matrix) else np.array(matrix, order="F" if self.env_major else "C")

    def constant(self, number: Any) -> Array:
        """(T, N), all the same, in the memory of one row or column."""
        shape = (self.steps, 1) if self.env_major else (1, self.envs)
        return np.broadcast_to(np.full(shape, number), (self.steps, self.envs))

    def coefficients(self, array: Array) -> Array:
        """(T, N); without a stride where the array is broadcast."""
        matrix = self.merged(array)
        stride = matrix.strides[0 if self.env_major else 1]
        fits = stride in (0, matrix.itemsize) and matrix.flags.aligned
        return matrix if fits else np.array(matrix, order="F" if self.env_major else "C")

    def row(self, array: Array) -> Array:
        """(N,), contiguous, of an array without time."""
        if array.ndim != 1:
            time, *others = self.axes
            array = array.transpose([axis - (axis > time) for axis in others]).reshape(self.envs)
        return array if array.flags.c_contiguous and array.flags.aligned else array.copy()

    def in_caller_order(self, row: Array) -> Array:
        """(N,) as the envs are in rewards, in C order."""
        if len(self.axes) < 3:
            return row
        others = [axis for axis in self.axes if axis != self.axes[0]]
        return (
            row.reshape(self.lengths[1:]).transpose([others.index(axis) for axis in sorted(others)]).reshape(self.envs)
        )

    def output(self, array: Array | None, inputs: tuple[Any, ...]) -> Array | None:
        """The matrix to fill: the array's own memory, or other where that has another layout or holds an input."""
        if array is None:
            return None
        if not _merge(array.shape, array.strides, self.axes[1:]) or not self.fits(matrix := self.merged(array)):
            return self.empty(array.dtype)
        for taken in inputs:
            if isinstance(taken, np.ndarray) and np.may_share_memory(array, taken):
                return self.empty(array.dtype)
        return matrix

    def restored(self, filled: Any, given: Arguments) -> GAEResult:
        """The caller's outputs, or new ones in the memory order of rewards."""
        if given.out is None:
            return (
                GAEResult(*filled)
                if self.axes == (0, 1)
                else GAEResult(*[self.like(given.rewards, each) for each in filled])
            )
        for array, matrix in zip(given.out, filled, strict=True):
            if array is not None and array is not matrix and not np.may_share_memory(array, matrix):
                array[...] = self.split(matrix)
        return GAEResult(*given.out)  # type: ignore[arg-type]

    def like(self, rewards: Array, matrix: Array) -> Array:
        """A matrix in rewards' shape and memory order."""
        array, split = np.empty_like(rewards), self.split(matrix)
        if array.strides == split.strides:
            return split
        array[...] = split
        return array

    def empty(self, dtype: np.dtype[Any]) -> Array:
        return np.empty((self.steps, self.envs), dtype, order="F" if self.env_major else "C")

    def merged(self, array: Array) -> Array:
        """(T, N), a view where the strides of the merged axes allow it."""
        if self.axes == (0, 1):
            return array
        return array.transpose(self.axes).reshape(array.shape[self.axes[0]], self.envs)

    def split(self, matrix: Array) -> Array:
        """A matrix in rewards' shape, always a view."""
        return matrix if self.axes == (0, 1) else matrix.reshape(self.lengths).transpose(self.places)

    def fits(self, matrix: Array) -> bool:
        unit_axis = 0 if self.env_major else 1
        unit = matrix.strides[unit_axis] == matrix.itemsize or matrix.shape[unit_axis] <= 1
        return unit and matrix.flags.aligned


@functools.lru_cache  # a training run asks for the same again and again
def _layout_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, time_axis: int) -> Layout:
    # Outermost first, so that the axes merge without a copy wherever one memory order allows it.
    others = sorted({*range(len(shape))} - {time_axis}, key=lambda axis: (-abs(strides[axis]), axis))
    axes = (time_axis, *others)
    lengths, places = tuple(shape[axis] for axis in axes), tuple(axes.index(axis) for axis in range(len(axes)))
    steps, envs = lengths[0], math.prod(lengths[1:])
    step = strides[time_axis]
    env = next((strides[axis] for axis in reversed(others) if shape[axis] != 1), itemsize)
    # What has no unit stride is copied, and that is cheapest in the order in which it is.
    by_env = steps > 1 and env != itemsize and (step == itemsize or abs(step) < abs(env))
    return Layout(axes, lengths, places, envs, envs == 1 or (by_env and _merge(shape, strides, others)))


def _merge(shape: tuple[int, ...], strides: tuple[int, ...], axes: Sequence[int]) -> bool:
    """Whether these axes, outermost first, are one axis of one stride."""
    if len(axes) < 2:
        return True
    long = [axis for axis in axes if shape[axis] != 1]
    return all(strides[outer] == strides[inner] * shape[inner] for outer, inner in itertools.pairwise(long))
