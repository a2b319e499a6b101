"""One argument at a time: what it says, or the error that names it."""

import enum
import functools
import math
import operator
from typing import Any

import numpy as np

from fastgae._canonical.contract import Array, Output
from fastgae._interop import as_array as as_array
from fastgae._interop import as_numbers as as_numbers
from fastgae._interop import is_weak

WORKING_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
LARGEST_SINGLE = float(np.finfo(np.float32).max)
LONGEST_SHOWN = 200  # characters of an argument in a message
REQUIRED = ("rewards", "values", "advantages", "x", "decay")
NEXT_STEP = "next_step"
AUTORESET = (NEXT_STEP, "same_step", "disabled")
LIKE_REWARDS, WITHOUT_TIME = "rewards' shape", "rewards' shape without time"


def of_one_dtype(**given: object) -> list[Any]:
    """The numbers of a call in the working dtype; of those that may be missing, None."""
    arrays = [None if raw is None and name not in REQUIRED else as_numbers(name, raw) for name, raw in given.items()]
    strong = [
        array.dtype
        for array, raw in zip(arrays, given.values(), strict=True)
        if array is not None and (raw is array or not is_weak(raw))
    ]
    dtype = _working_dtype(*strong)
    return [None if array is None else _cast(array, dtype) for array in arrays]


def working_dtype(**given: object) -> np.dtype[Any]:
    """The dtype in which a call with these numbers is computed."""
    dtype: np.dtype[Any] = of_one_dtype(**given)[0].dtype
    return dtype


@functools.lru_cache  # NumPy takes a microsecond to promote
def _working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    single, double = WORKING_DTYPES
    return single if dtypes and np.result_type(*dtypes) == single else double


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype == dtype:
        return array
    if array.ndim or abs(array.item()) <= LARGEST_SINGLE:
        return array.astype(dtype)
    with np.errstate(over="ignore"):  # a Python number beyond the working dtype becomes infinity
        return array.astype(dtype)


def as_time_axis(time_axis: int, ndim: int, name: str = "rewards") -> int:
    if ndim == 0:
        raise ValueError(f"{name} is a scalar; expected an array with a time axis")
    axis = integer_of(time_axis)
    if axis is None:
        raise TypeError(f"time_axis must be an integer, got {shown(time_axis)}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"time_axis={shown(axis)} is out of range for {name} with {ndim} dimension{'s'[: ndim > 1]}")
    return axis % ndim


def as_flags(name: str, given: object, shape: tuple[int, ...], what: str = LIKE_REWARDS) -> Array:
    array = as_array(name, given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold bool, or numbers that are 0 or 1, got {array.dtype}")
    check_shape(name, array, shape, what)
    if array.dtype.kind == "b":
        return array
    ones: Array = np.equal(array, 1)
    # NumPy counts integers fast, floats one by one.
    if np.count_nonzero(ones) != np.count_nonzero(array.astype(bool) if array.dtype.kind == "f" else array):
        where = tuple(int(i) for i in np.argwhere(ones != (array != 0))[0])
        raise ValueError(f"{name} must hold 0 or 1, got {array[where]} at index {where}")
    return ones


def as_unit_interval(name: str, given: Any, shape: tuple[int, ...]) -> Any:
    """A float, or a float64 array that broadcasts to rewards."""
    if type(given) is not float:
        if getattr(given, "ndim", 0) or isinstance(given, list | tuple):
            return _unit_intervals(name, as_numbers(name, given).astype(np.float64), shape)
        given = as_number(name, given, "a number in [0, 1], or an array of them", "biuf", TypeError)
    if not 0.0 <= given <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {shown(given)}")
    return given


def _unit_intervals(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    check_broadcast(name, array, shape)
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all():
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(f"{name} must be in [0, 1], got {array[where]} at index {where}")
    return array


def as_number(
    name: str, given: Any, expected: str, kinds: str = "iuf", otherwise: type[Exception] = ValueError
) -> float:
    """Return a number as a float. ``kinds`` are the kinds of NumPy's numbers that are taken."""
    kind: str
    if isinstance(given, np.generic):
        kind = given.dtype.kind
    elif isinstance(given, np.ndarray):
        kind = "" if given.ndim or isinstance(given, np.ma.MaskedArray) else given.dtype.kind
    else:
        kind = "b" if isinstance(given, bool) else "f" if _has_number(given) else ""
    cause: Exception | None = None
    if kind and kind in kinds:
        try:
            return float(given)
        except OverflowError as error:
            raise ValueError(f"{name} must be {expected}, got an integer too large for float64") from error
        except Exception as error:  # of whatever kind, from an object's own __float__
            cause = error
    raise otherwise(f"{name} must be {expected}, got {shown(given)}") from cause


def _has_number(given: object) -> bool:
    """Whether float() takes a number from it: float() reads text too, and the bytes of any buffer."""
    return hasattr(type(given), "__float__") or hasattr(type(given), "__index__")


def as_clip(name: str, given: Any) -> float:
    """Return what ratios are clipped to: infinity for None."""
    if type(given) is float and given >= 0.0:
        return given
    if given is None:
        return math.inf
    expected = "a number >= 0, or None"
    clip = as_number(name, given, expected)
    if not clip >= 0.0:
        raise ValueError(f"{name} must be {expected}, got {clip!r}")
    return clip


def integer_of(given: Any) -> int | None:
    """Return an integer, None for whatever is not one: also bool, which is more often a mistake than a number."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except Exception:  # of whatever kind, from an object's own __index__
        return None


def as_coefficient(given: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Rounded once, from float64; a number is rounded where it is used."""
    return np.broadcast_to(given.astype(dtype), shape) if isinstance(given, np.ndarray) else given


def shown(given: object) -> str:
    """Return what was given, for a message: not all of it where that is long, and something where that fails."""
    try:
        text = repr(given)
    except Exception:  # Python refuses to write out long integers, and an object may do anything
        return f"an object of type {type(given).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def as_switch(name: str, given: object) -> bool:
    """Return a switch, which must be True or False: the truth of anything else may take code to find out."""
    if given is True or given is False or isinstance(given, np.bool_):
        return bool(given)
    raise TypeError(f"{name} must be True or False, got {shown(given)}")


def autoreset_mode(given: object) -> str | None:
    """The name of a mode; Gymnasium's AutoresetMode members are named alike."""
    if given is None:
        return None
    name = given.name if isinstance(given, enum.Enum) else given
    mode = name.lower() if isinstance(name, str) else None
    if mode not in AUTORESET:
        raise ValueError(
            f"autoreset must be one of {', '.join(map(repr, AUTORESET))}, the member of Gymnasium's AutoresetMode, or "
            f"None, got {shown(given)}"
        )
    return mode


def as_prev_done(given: object, mode: str | None, shape: tuple[int, ...]) -> Array | None:
    if given is None:
        return None
    if mode != NEXT_STEP:
        raise ValueError('prev_done tells where row 0 is a reset row, and only autoreset="next_step" has reset rows')
    return as_flags("prev_done", given, shape, WITHOUT_TIME)


def checked_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Output:
    """Check the pair (advantages, returns)."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"out must be a pair (advantages, returns), either of them None, got {type(out).__name__}")
    advantages, returns = out
    if advantages is None and returns is None:
        raise ValueError("out is (None, None): there is nothing to compute")
    for i, array in enumerate(out):
        if array is not None:
            check_output(f"out[{i}]", array, shape, dtype, LIKE_REWARDS)
    if advantages is not None and returns is not None and np.shares_memory(advantages, returns):
        raise ValueError("out[0] and out[1] share memory")
    return advantages, returns


def array_to_fill(out: Any, like: Array, what: str = LIKE_REWARDS) -> Array:
    """Return the only array of results: ``out``, or a new one."""
    if out is None:
        return np.empty_like(like)
    check_output("out", out, like.shape, like.dtype, what)
    array: Array = out
    return array


def check_output(name: str, array: object, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> None:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
    check_shape(name, array, shape, what)
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}; expected the working dtype {dtype}")
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only")
    if not array.flags.forc and _overlaps_itself(array):
        raise ValueError(f"{name} is an overlapping or broadcast view: several of its elements share memory")


def _overlaps_itself(array: Array) -> bool:
    """Whether two elements share a byte, found exactly: without a look at them where each axis lies inside the next."""
    axes = sorted((abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1)
    extent = array.itemsize
    for stride, length in axes:
        if stride < array.itemsize:
            return True
        if stride < extent:
            break  # the axes interleave, as only strides set by hand do
        extent += stride * (length - 1)
    else:
        return False
    offsets: Array = functools.reduce(np.add.outer, [np.arange(length) * stride for stride, length in axes])
    return bool((np.diff(np.sort(offsets, axis=None)) < array.itemsize).any())


def check_shape(name: str, array: Array | None, shape: tuple[int, ...], what: str) -> None:
    if array is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {what}, {shape}")


def check_broadcast(name: str, array: Array, shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}")
