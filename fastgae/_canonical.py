"""The caller's arguments -> Arguments, which say what is meant -> matrices of one layout -> one Rollout.

The only place that looks at dtype, shape, strides and flags.
"""

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORKING_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

Array = NDArray[Any]
Output = tuple[Array | None, Array | None]


class GAEResult(NamedTuple):
    """Advantages and returns (value targets); None where ``out`` asked for only the other."""

    advantages: Array
    returns: Array


class Arguments(NamedTuple):
    """A call of which all is checked: the numbers have one dtype and the flags are bool.

    Shapes and memory are the caller's, or (T, N) in one layout.
    """

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array | None
    last_values: Array | None
    next_values: Array | None
    final_values: Array | None  # like rewards, or one per True of truncated
    gamma: float
    gae_lambda: float
    time_axis: int
    out: Output | None


class Rollout(NamedTuple):
    """What every backend takes: (T, N) views of one dtype, aligned, native, and all in one layout.

    Time-major (unit stride along N) or env-major (unit stride along T); the other stride is free, and negative or
    zero where the caller's was. The outputs overlap nothing.
    """

    rewards: Array
    values: Array
    next_values: Array  # (T - 1, N): V' of all steps but the last; often a view of values
    last_values: Array  # (N,): V' of the last step
    final_values: Array | None  # V' where truncated; undefined elsewhere
    terminated: Array
    truncated: Array | None
    gamma: np.floating[Any]
    gamma_lambda: np.floating[Any]
    advantages: Array | None
    returns: Array | None


# --- meaning ----------------------------------------------------------------------------------------------------------


def checked_arguments(
    rewards: ArrayLike,
    values: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    last_values: ArrayLike | None,
    next_values: ArrayLike | None,
    final_values: ArrayLike | None,
    gamma: float,
    gae_lambda: float,
    time_axis: int,
    out: Output | None,
) -> Arguments:
    """Everything that can be wrong with a call is found here, before anything is written."""
    reward, value = _numbers("rewards", rewards), _numbers("values", values)
    last = None if last_values is None else _numbers("last_values", last_values)
    following = None if next_values is None else _numbers("next_values", next_values)
    final = None if final_values is None else _numbers("final_values", final_values)
    given = ((rewards, reward), (values, value), (last_values, last), (next_values, following), (final_values, final))
    strong = [array.dtype for raw, array in given if array is not None and (raw is array or not _is_weak(raw))]
    dtype = _working_dtype(*strong)

    shape = reward.shape
    axis = _time_axis(time_axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    one_longer = (*before, shape[axis] + 1, *after)
    if value.shape != shape and value.shape != one_longer:
        raise ValueError(
            f"values has shape {value.shape}; expected rewards' shape {shape}, or {one_longer} with a last V"
        )
    _check_bootstrap(value.shape == one_longer, last is not None, following is not None, shape)
    if last is not None:
        _check_shape("last_values", last, before + after, "rewards' shape without time")
    if following is not None:
        _check_shape("next_values", following, shape, "rewards' shape")
    term = _flags("terminated", terminated, shape)
    trunc = None if truncated is None else _flags("truncated", truncated, shape)
    _check_final_values(final, trunc, following is not None)
    discount, trace = _unit_interval("gamma", gamma), _unit_interval("gae_lambda", gae_lambda)
    return Arguments(
        _cast(reward, dtype),
        _cast(value, dtype),
        term,
        trunc,
        None if last is None else _cast(last, dtype),
        None if following is None else _cast(following, dtype),
        None if final is None else _cast(final, dtype),
        discount,
        trace,
        axis,
        None if out is None else _checked_out(out, shape, dtype),
    )


def _array(name: str, given: object) -> Array:
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and its mask would be lost: pass a plain array")
    try:
        return np.asarray(given)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name} cannot be read as an array: {error}") from error


def _numbers(name: str, given: object) -> Array:
    array = _array(name, given)
    if array.dtype in WORKING_DTYPES or array.dtype.kind in "biu" or array.dtype.newbyteorder("=") in WORKING_DTYPES:
        return array
    raise TypeError(f"{name} has dtype {array.dtype}; expected float32, float64 or integers: convert it first")


def _is_weak(given: object) -> bool:
    """A Python number promotes nothing, as in NumPy, and neither does an empty list of final values."""
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)


@functools.lru_cache  # NumPy takes a microsecond to promote
def _working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    single, double = WORKING_DTYPES
    return single if dtypes and np.result_type(*dtypes) == single else double


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    return array if array.dtype == dtype else array.astype(dtype)


def _time_axis(time_axis: int, ndim: int) -> int:
    if ndim == 0:
        raise ValueError("rewards is a scalar; expected an array with a time axis")
    try:
        axis = operator.index(time_axis)
    except TypeError:
        raise TypeError(f"time_axis must be an integer, got {time_axis!r}") from None
    if not -ndim <= axis < ndim:
        raise ValueError(f"time_axis={axis} is out of range for rewards with {ndim} dimension{'s'[: ndim > 1]}")
    return axis % ndim


def _check_bootstrap(longer: bool, last: bool, following: bool, shape: tuple[int, ...]) -> None:
    if longer + last + following == 1:
        return
    names = ["values with one extra row"] * longer + ["last_values"] * last + ["next_values"] * following
    if names:
        raise ValueError(f"the value after the last step is given more than once: {' and '.join(names)}; keep one")
    raise ValueError(
        f"the value after the last step is missing: pass last_values, next_values, or values with one row more along "
        f"time than rewards' shape {shape}"
    )


def _check_shape(name: str, array: Array, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {what}, {shape}")


def _flags(name: str, given: object, shape: tuple[int, ...]) -> Array:
    array = _array(name, given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold bool, or numbers that are 0 or 1, got {array.dtype}")
    _check_shape(name, array, shape, "rewards' shape")
    if array.dtype.kind == "b":
        return array
    ones: Array = np.equal(array, 1)
    # NumPy counts integers fast, floats one by one.
    if np.count_nonzero(ones) != np.count_nonzero(array.astype(bool) if array.dtype.kind == "f" else array):
        where = tuple(int(i) for i in np.argwhere(ones != (array != 0))[0])
        raise ValueError(f"{name} must hold 0 or 1, got {array[where]} at index {where}")
    return ones


def _check_final_values(final: Array | None, truncated: Array | None, following: bool) -> None:
    if truncated is None:
        if final is None:
            return
        raise ValueError(
            "final_values is given without truncated: it holds V of the final observation of truncated steps"
        )
    if final is None:
        if following:
            return
        raise ValueError(
            "truncated is given, but values[t + 1] may belong to another episode, so the value after a truncated step "
            "is unknown: pass final_values (V of the final observations), or next_values (V of every next observation "
            'before any reset); the third way, autoreset="next_step", is not available yet'
        )
    if following:
        raise ValueError("final_values and next_values both hold the value after a truncated step: keep one")
    if final.shape != truncated.shape and final.shape != (count := np.count_nonzero(truncated),):
        raise ValueError(
            f"final_values has shape {final.shape}; expected ({count},), one per True of truncated, or rewards' shape "
            f"{truncated.shape}"
        )


def _unit_interval(name: str, given: Any) -> float:
    number = given if type(given) is float else _number(name, given)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must be a number in [0, 1], got {given!r}")
    return number


def _number(name: str, given: Any) -> float:
    # float() would read text, and an array of one number.
    if not isinstance(given, str | bytes) and getattr(given, "ndim", 0) == 0:
        try:
            return float(given)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            return math.inf
    raise TypeError(f"{name} must be a number in [0, 1], got {given!r}")


def _checked_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Output:
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"out must be a pair (advantages, returns), either of them None, got {type(out).__name__}")
    if out[0] is None and out[1] is None:
        raise ValueError("out is (None, None): there is nothing to compute")
    for i, array in enumerate(out):
        if array is None:
            continue
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"out[{i}] must be a NumPy array, got {type(array).__name__}")
        if array.shape != shape:
            raise ValueError(f"out[{i}] has shape {array.shape}; expected rewards' shape, {shape}")
        if array.dtype != dtype:
            raise TypeError(f"out[{i}] has dtype {array.dtype}; expected the working dtype {dtype}")
        if not array.flags.writeable:
            raise ValueError(f"out[{i}] is read-only")
        repeated = 0 in array.strides and [n for n, stride in zip(shape, array.strides, strict=True) if stride == 0]
        if repeated and array.size and max(repeated) > 1:
            raise ValueError(f"out[{i}] is a broadcast view: several of its elements share memory")
    if out[0] is not None and out[1] is not None and np.shares_memory(out[0], out[1]):
        raise ValueError("out[0] and out[1] share memory")
    return out[0], out[1]


# --- memory -----------------------------------------------------------------------------------------------------------


def in_one_layout(given: Arguments) -> tuple[Arguments, "Layout"]:
    """The same call on (T, N) matrices in the layout of rewards; Layout.restored makes of them what was asked for."""
    rewards, final = given.rewards, given.final_values
    layout = _layout_of(rewards.shape, rewards.strides, rewards.itemsize, given.time_axis)
    if final is not None and final.shape != rewards.shape:
        final = np.empty_like(rewards)
        final[given.truncated] = given.final_values
    inputs = (
        layout.matrix(rewards),
        layout.matrix(given.values),
        layout.matrix(given.terminated),
        None if given.truncated is None else layout.matrix(given.truncated),
        None if given.last_values is None else layout.row(given.last_values),
        None if given.next_values is None else layout.matrix(given.next_values),
        None if final is None else layout.matrix(final),
    )
    out = given.out and (layout.output(given.out[0], inputs), layout.output(given.out[1], inputs))
    return Arguments(*inputs, given.gamma, given.gae_lambda, 0, out), layout


def canonical_rollout(matrices: Arguments, layout: "Layout") -> Rollout:
    """V' becomes that of all steps but the last, and that of the last."""
    rewards, values, terminated, truncated, last, following, final, gamma, gae_lambda, _, out = matrices
    steps, dtype = layout.steps, rewards.dtype
    if following is None:
        following = values[1:]
    if last is None:
        last = following[steps - 1] if steps else np.empty(layout.envs, dtype)
    return Rollout(
        rewards,
        values[:steps],
        following[: max(steps - 1, 0)],
        last,
        final,
        terminated,
        truncated,
        dtype.type(gamma),
        dtype.type(gamma * gae_lambda),
        *(out or (layout.empty(dtype), layout.empty(dtype))),
    )


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

    def row(self, array: Array) -> Array:
        """(N,), contiguous, of an array without time."""
        if array.ndim != 1:
            time, *others = self.axes
            array = array.transpose([axis - (axis > time) for axis in others]).reshape(self.envs)
        return array if array.flags.c_contiguous and array.flags.aligned else array.copy()

    def output(self, array: Array | None, inputs: tuple[Array | None, ...]) -> Array | None:
        """The matrix to fill: the array's own memory, or other where that has another layout or holds an input."""
        if array is None:
            return None
        if not _merge(array.shape, array.strides, self.axes[1:]) or not self.fits(matrix := self.merged(array)):
            return self.empty(array.dtype)
        for taken in inputs:
            if taken is not None and np.may_share_memory(array, taken):
                return self.empty(array.dtype)
        return matrix

    def restored(self, filled: GAEResult, given: Arguments) -> GAEResult:
        """The caller's outputs, or new ones in the memory order of rewards."""
        if given.out is None:
            return filled if self.axes == (0, 1) else GAEResult(*[self.like(given.rewards, each) for each in filled])
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
