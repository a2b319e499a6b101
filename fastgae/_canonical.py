"""The caller's arrays -> one Rollout. The only place that looks at dtype, shape, strides and flags."""

import math
import operator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Rollout:
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


def canonical_rollout(
    rewards: ArrayLike,
    values: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    *,
    last_values: ArrayLike | None,
    next_values: ArrayLike | None,
    final_values: ArrayLike | None,
    gamma: float,
    gae_lambda: float,
    time_axis: int,
    out: Output | None,
) -> tuple[Rollout, "Outputs"]:
    """Check everything, then bring everything into one layout; nothing is written to ``out`` before both are done."""
    given = {
        "rewards": rewards,
        "values": values,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
    }
    for required in ("rewards", "values"):
        if given[required] is None:
            raise TypeError(f"{required} must be an array, got None")
    numbers = {name: _numbers(name, array) for name, array in given.items() if array is not None}
    reward, value = numbers["rewards"], numbers["values"]
    last, following, final = numbers.get("last_values"), numbers.get("next_values"), numbers.get("final_values")
    # A Python number promotes nothing, as in NumPy, and neither does an empty list of final values.
    dtype = _working_dtype([array.dtype for name, array in numbers.items() if not _is_weak(given[name])])

    shape = reward.shape
    axis = _time_axis(time_axis, len(shape))
    steps, without_time = shape[axis], shape[:axis] + shape[axis + 1 :]
    one_longer = (*shape[:axis], steps + 1, *shape[axis + 1 :])
    if value.shape != shape and value.shape != one_longer:
        raise ValueError(
            f"values has shape {value.shape}; expected rewards' shape {shape}, or {one_longer} with a last V"
        )
    longer = value.shape == one_longer
    _check_bootstrap(longer, last is not None, following is not None, shape)
    if last is not None:
        _check_shape("last_values", last, without_time, "rewards' shape without time")
    if following is not None:
        _check_shape("next_values", following, shape, "rewards' shape")
    term = _flags("terminated", terminated, shape)
    trunc = None if truncated is None else _flags("truncated", truncated, shape)
    if trunc is not None or final is not None:
        final = _dense_final_values(final, trunc, following, reward, dtype)
    discount, trace = _unit_interval("gamma", gamma), _unit_interval("gae_lambda", gae_lambda)
    _check_out(out, shape, dtype)

    layout = _Layout.of(reward, axis, dtype)
    rewards_2d, values_2d = layout.matrix(reward), layout.matrix(value)
    if following is not None:
        next_2d = layout.matrix(following)
        last_1d, next_2d = next_2d[steps - 1 :], next_2d[: max(steps - 1, 0)]
        last_1d = last_1d[0] if steps else np.empty(layout.envs, dtype)
    else:
        next_2d = values_2d[1:steps]
        last_1d = values_2d[steps] if last is None else layout.row(last)
    final_2d = None if final is None else layout.matrix(final)
    term_2d, trunc_2d = layout.flags(term), None if trunc is None else layout.flags(trunc)
    inputs = [rewards_2d, values_2d, next_2d, last_1d, final_2d, term_2d, trunc_2d]
    outputs = Outputs.of(out, reward, layout, inputs)
    rollout = Rollout(
        rewards=rewards_2d,
        values=values_2d[:steps],
        next_values=next_2d,
        last_values=last_1d,
        final_values=final_2d,
        terminated=term_2d,
        truncated=trunc_2d,
        gamma=dtype.type(discount),
        gamma_lambda=dtype.type(discount * trace),
        advantages=outputs.matrices[0],
        returns=outputs.matrices[1],
    )
    return rollout, outputs


# --- meaning ----------------------------------------------------------------------------------------------------------


def _array(name: str, given: object) -> Array:
    if type(given) is np.ndarray:
        return given
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
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)


def _working_dtype(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    first = dtypes[0] if dtypes else WORKING_DTYPES[1]
    dtype = first if all(dtype is first for dtype in dtypes) else np.result_type(*dtypes)
    return dtype.newbyteorder("=") if dtype.kind == "f" else WORKING_DTYPES[1]


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
    if given is None or array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold bool, or numbers that are 0 or 1, got {'None' if given is None else array.dtype}"
        )
    _check_shape(name, array, shape, "rewards' shape")
    if array.dtype.kind == "b":
        return array
    ones, zeros = array == 1, array == 0
    if np.count_nonzero(ones) + np.count_nonzero(zeros) != array.size:
        where = tuple(int(i) for i in np.argwhere(ones == zeros)[0])
        raise ValueError(f"{name} must hold 0 or 1, got {array[where]} at index {where}")
    return np.asarray(ones)


def _dense_final_values(
    final: Array | None, truncated: Array | None, following: Array | None, reward: Array, dtype: np.dtype[Any]
) -> Array | None:
    """final_values like rewards, undefined where not truncated; None where next_values take their place."""
    if truncated is None:
        raise ValueError(
            "final_values is given without truncated: it holds V of the final observation of truncated steps"
        )
    if final is None:
        if following is not None:
            return None
        raise ValueError(
            "truncated is given, but values[t + 1] may belong to another episode, so the value after a truncated step "
            "is unknown: pass final_values (V of the final observations), or next_values (V of every next observation "
            'before any reset); the third way, autoreset="next_step", is not available yet'
        )
    if following is not None:
        raise ValueError("final_values and next_values both hold the value after a truncated step: keep one")
    if final.shape == truncated.shape:
        return final
    count = np.count_nonzero(truncated)
    if final.shape != (count,):
        raise ValueError(
            f"final_values has shape {final.shape}; expected ({count},), one per True of truncated, or rewards' shape "
            f"{truncated.shape}"
        )
    dense = np.empty_like(reward, dtype, subok=False)
    dense[truncated] = final
    return dense


def _unit_interval(name: str, given: Any) -> float:
    message = f"{name} must be a number in [0, 1], got {given!r}"
    if isinstance(given, str | bytes) or np.ndim(given) > 0:
        raise TypeError(message)
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise TypeError(message) from None
    except OverflowError:
        raise ValueError(message) from None
    if not 0.0 <= number <= 1.0:
        raise ValueError(message)
    return number


def _check_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if out is None:
        return
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
        if array.size and any(stride == 0 and n > 1 for stride, n in zip(array.strides, array.shape, strict=True)):
            raise ValueError(f"out[{i}] is a broadcast view: several of its elements share memory")
    if out[0] is not None and out[1] is not None and np.shares_memory(out[0], out[1]):
        raise ValueError("out[0] and out[1] share memory")


# --- memory -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    """How arrays of rewards' shape become (T, N) matrices: one order of axes, one unit stride, one dtype."""

    axes: tuple[int, ...]
    steps: int
    envs: int
    env_major: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rewards: Array, time_axis: int, dtype: np.dtype[Any]) -> "_Layout":
        others = [axis for axis in range(rewards.ndim) if axis != time_axis]
        # Outermost first, so that the axes merge without a copy wherever one memory order allows it.
        others.sort(key=lambda axis: -abs(rewards.strides[axis]))
        steps, envs = rewards.shape[time_axis], math.prod(rewards.shape[axis] for axis in others)
        layout = cls((time_axis, *others), steps, envs, envs == 1, dtype)
        steps_apart, envs_apart = layout.merged(rewards).strides
        if steps > 1 and steps_apart == rewards.itemsize != envs_apart:
            return cls(layout.axes, steps, envs, True, dtype)
        return layout

    def merged(self, array: Array) -> Array:
        """(T, N): a view where the strides of the merged axes allow it."""
        if self.axes == (0, 1):
            return array
        return array.transpose(self.axes).reshape(-1 if self.envs else array.shape[self.axes[0]], self.envs)

    def fits(self, matrix: Array) -> bool:
        unit_axis = 0 if self.env_major else 1
        unit = matrix.strides[unit_axis] == matrix.itemsize or matrix.shape[unit_axis] <= 1
        return unit and matrix.flags.aligned

    def flags(self, array: Array) -> Array:
        matrix = self.merged(array)
        return matrix if self.fits(matrix) else np.array(matrix, order="F" if self.env_major else "C")

    def matrix(self, array: Array) -> Array:
        return self.flags(array if array.dtype == self.dtype else array.astype(self.dtype))

    def row(self, array: Array) -> Array:
        """(N,), contiguous, of an array without time."""
        kept = sorted(self.axes[1:])
        ordered = array.transpose([kept.index(axis) for axis in self.axes[1:]]).reshape(self.envs)
        return np.require(ordered, self.dtype, ["C", "A"])

    def memory_of(self, output: Array) -> Array:
        """The matrix to fill: the output's own memory, or other where that has another layout."""
        matrix = self.merged(output)
        own = np.may_share_memory(matrix, output) and self.fits(matrix)
        return matrix if own else self.empty()

    def empty(self) -> Array:
        return np.empty((self.steps, self.envs), self.dtype, order="F" if self.env_major else "C")


class Outputs(NamedTuple):
    """The caller's arrays, and the matrices that the kernel fills for them: the same memory wherever that will do."""

    arrays: tuple[Array | None, ...]
    matrices: tuple[Array | None, ...]
    layout: _Layout

    @classmethod
    def of(cls, out: Output | None, reward: Array, layout: _Layout, inputs: list[Array | None]) -> "Outputs":
        if out is None:
            fresh = tuple(np.empty_like(reward, layout.dtype, subok=False) for _ in range(2))
            return cls(fresh, tuple(map(layout.memory_of, fresh)), layout)
        clear = (
            array is None or not any(np.may_share_memory(array, taken) for taken in inputs if taken is not None)
            for array in out
        )
        matrices = (
            None if array is None else layout.memory_of(array) if free else layout.empty()
            for array, free in zip(out, clear, strict=True)
        )
        return cls(tuple(out), tuple(matrices), layout)

    def result(self) -> GAEResult:
        """The caller's arrays, filled."""
        for array, matrix in zip(self.arrays, self.matrices, strict=True):
            if array is not None and matrix is not None and not np.may_share_memory(array, matrix):
                ordered = array.transpose(self.layout.axes)
                ordered[...] = matrix.reshape(ordered.shape)
        return GAEResult(*self.arrays)  # type: ignore[arg-type]
