"""Check the arguments that must fit the first one: in its shape, without time, or in a shape that broadcasts."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import NEW, ROLES, Array, Role
from fastgae._canonical.arguments import as_number, check_shape, integer_of, shown
from fastgae._interop.arrays import OnDevice, broadcast_to, check_wide, widened
from fastgae._interop.libraries import as_array, as_numbers


class Frame(NamedTuple):
    """The first argument of a call: its name, its shape and its axis of time."""

    name: str
    shape: tuple[int, ...]
    axis: int
    on_device: bool = False  # on a GPU; then one number stays one number
    names_time_axis: bool = True  # the function has an argument time_axis, which advice may name

    @property
    def without_time(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    @property
    def one_longer(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], self.shape[self.axis] + 1, *self.shape[self.axis + 1 :])

    @property
    def one_step(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])

    @property
    def like(self) -> str:
        """Return the words for this shape in a message."""
        return f"{self.name}'{'' if self.name.endswith('s') else 's'} shape"

    def steps(self, name: str, array: Array) -> Array:
        """Check one number per step."""
        if array.shape != self.shape:  # compared here first, because `like` takes longer
            check_shape(name, array, self.shape, self.like, self.advice(name, array))
        return array

    def check_factors(self, name: str, array: Array) -> None:
        """Check numbers that are the same along some axes. A missing axis is refused, because it could be any axis."""
        if array.ndim and not (array.ndim == len(self.shape) and self._repeats(array.shape)):
            per_step = tuple(n if axis == self.axis else 1 for axis, n in enumerate(self.shape))
            raise ValueError(
                f"{name} has shape {array.shape}; expected one number, or an array with the axes of {self.like}, "
                f"{self.shape}, each of full length or of length 1: {self.one_step} is one per env, {per_step} one per "
                "step"
            )

    def factors(self, name: str, array: Array) -> Array:
        """Return checked numbers of any size as an array, because a kernel for one number expects it in [0, 1]."""
        self.check_factors(name, array)
        return array if array.ndim or isinstance(array, OnDevice) else array.reshape((1,) * len(self.shape))

    def envs(self, name: str, array: Array) -> Array:
        """Return one number per env. One number alone stands for all envs."""
        if array.shape == self.without_time:
            return array
        if array.shape == self.one_step:
            return array.reshape(self.without_time)
        if array.ndim:
            raise self._not_per_env(name, array, "one number, or ")
        return array if self.on_device else np.full(self.without_time, array)

    def flags(self, name: str, given: object) -> Array:
        """Return flags of every step. They are repeated along axes that are missing or have length 1."""
        flags = as_flags(name, given, self._check_step_flags)
        if flags.shape == self.shape:
            return flags
        return broadcast_to(flags.reshape((*flags.shape, *(1,) * (len(self.shape) - flags.ndim))), self.shape)

    def flags_or_none(self, name: str, given: object) -> Array | None:
        return None if given is None else self.flags(name, given)

    def env_flags(self, name: str, given: object) -> Array:
        return as_flags(name, given, self._check_env_flags).reshape(self.without_time)

    def coefficient(self, name: str, given: Any) -> Any:
        """Return a float, or a float64 array that broadcasts to the shape."""
        return as_unit_interval(name, given, self.check_factors)

    def advice(self, name: str, array: Array) -> str:
        """Return the end of an error message about an array of a wrong shape: what would make it fit."""
        shape = array.shape
        role, steps = ROLES.get(name), (self.shape, self.one_longer)
        per_env, flags = role in (Role.ENVS, Role.ENV_FLAGS, Role.MOMENTS), role is Role.STEP_FLAGS
        if shape[-1:] == (1,) and (shape[:-1] in steps or (per_env and shape[:-1] == self.without_time)):
            return f"; squeeze its last axis: {name}[..., 0]"
        if (*shape, 1) in ((self.without_time,) if per_env else steps):
            return f"; squeeze the last axis of {self.name}: {self.name}[..., 0]"
        if not shape and self.on_device:
            return "; if all are alike, broadcast it to this shape"
        if not shape:
            return f"; if all are alike, pass np.full({self.without_time if per_env else self.shape}, {name})"
        of_ends = flags and name != "mask"
        if shape == self.one_longer and not (of_ends or per_env):
            later = "" if name == "values" else f"{self._rows(name, '1:')} or "
            return f"; it has a row too many: pass {later}{self._rows(name, ':-1')}"
        if shape == self.one_longer and of_ends:
            return (
                "; row t has the flag that env.step returned with reward t. If row t says that observation t begins an "
                f"episode, pass {self._rows(name, '1:')}, else {self._rows(name, ':-1')}"
            )
        if name == "mask" and shape == self.without_time and array.dtype.kind in "iu" and len(self.shape) == 2:
            steps_by_env = f"np.arange({self.shape[self.axis]})"
            fits = f"{steps_by_env} < {name}[:, None]" if self.axis else f"{steps_by_env}[:, None] < {name}"
            return f"; if these are lengths, pass {name}={fits}"
        if shape in steps:
            return f"; it has one number per step: pass one row, such as {name}[{':, ' * self.axis}-1]"
        if shape in (self.without_time, self.one_step):
            return "; it has one number per env, and one per step is needed"
        if shape == self.shape[self.axis : self.axis + 1] and not per_env:
            shared = f": pass {name}[{'None' if self.axis else ':, None'}]" if flags and len(self.shape) == 2 else ""
            return f"; it has one number per step, for all envs together{shared}"
        return self._fits_another_axis(name, shape, per_env)

    def _rows(self, name: str, rows: str) -> str:
        return f"{name}[{':, ' * self.axis}{rows}]"

    def _fits_another_axis(self, name: str, shape: tuple[int, ...], per_env: bool) -> str:
        if len(shape) == 2 and shape[::-1] in (self.shape, self.one_longer):
            return f"; its axes are in another order than those of {self.name}"
        found = []
        for other in (self._replace(axis=axis) for axis in range(len(self.shape)) if self.names_time_axis):
            longer = [other.one_longer] if name == "values" else []
            if shape in ([other.without_time, other.one_step] if per_env else longer):
                found.append(str(other.axis))
        return f"; it fits time_axis={' or '.join(found)}" if found else ""

    def _not_per_env(self, name: str, array: Array, or_else: str = "") -> ValueError:
        return ValueError(
            f"{name} has shape {array.shape}; expected {or_else}{self.like} with one step, {self.one_step}, or without "
            f"time, {self.without_time}{self.advice(name, array)}"
        )

    def _repeats(self, shape: tuple[int, ...]) -> bool:
        """Return whether these axes equal the first axes of the shape, each of full length or of length 1."""
        return all(n in (1, whole) for n, whole in zip(shape, self.shape, strict=False))

    def _check_step_flags(self, name: str, array: Array) -> None:
        """Check flags, which may lack axes after time and envs. A vector is refused, because its axis is ambiguous."""
        if array.shape == self.shape:
            return
        if array.ndim == 0 and not self.on_device:
            one = array.item()
            alike = f"if it holds for all steps, pass np.full({self.shape}, {bool(one)})"
            advice = alike if one in (0, 1) else "pass numbers by name"
            raise ValueError(f"{name} is one number, {shown(one)}; expected {self.like}, {self.shape}: {advice}")
        fewest = max(self.axis + 1, 2)
        fits = fewest <= array.ndim <= len(self.shape) and array.shape[self.axis] == self.shape[self.axis]
        if not (fits and self._repeats(array.shape)):
            or_less = f"; axes other than time may have length 1, and those after the first {fewest} may be missing"
            or_less = or_less if len(self.shape) > 1 else ""
            advice = self.advice(name, array) or or_less
            raise ValueError(f"{name} has shape {array.shape}; expected {self.like}, {self.shape}{advice}")

    def _check_env_flags(self, name: str, array: Array) -> None:
        if array.shape not in (self.without_time, self.one_step):
            raise self._not_per_env(name, array)

    def outputs(self, out: object, like: Array, names: tuple[str, str]) -> tuple[Any, Any]:
        """Return the checked pair (advantages, returns) to fill; NEW stands for an array to allocate."""
        if out is None:
            return NEW, NEW
        if not isinstance(out, tuple | list) or len(out) != 2:
            got = "one array" if hasattr(out, "shape") else type(out).__name__  # a tensor is an array of NumPy by now
            got += f" of {len(out)}" if isinstance(out, tuple | list) else ""
            raise TypeError(f"out must be a pair (advantages, returns), of which either may be None, got {got}")
        if out[0] is None and out[1] is None:
            raise ValueError("out is (None, None): there is nothing to compute")
        advantages, returns = (
            None if array is None else self.output(array, like, name) for array, name in zip(out, names, strict=True)
        )
        given = [array for array in (advantages, returns) if array is not None and array is not NEW]
        if len(given) == 2 and np.shares_memory(*map(self._memory_of, given)):
            raise ValueError("out[0] and out[1] share memory: pass two arrays")
        return advantages, returns

    def output(self, out: Any, like: Array, name: str = "out") -> Any:
        """Check the array to fill. NEW stands for an array to allocate."""
        if out is NEW:
            return out
        if self.on_device and not isinstance(out, OnDevice):
            raise TypeError(f"{name} must be a tensor on the device of {self.name}, got {type(out).__name__}")
        if not self.on_device and (not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray)):
            raise TypeError(f"{name} must be a NumPy array, got {type(out).__name__}")
        memory = self._memory_of(out)
        self.steps(name, memory)
        if out.dtype != like.dtype:
            raise TypeError(f"{name} has dtype {out.dtype}; expected the working dtype {like.dtype}")
        if not memory.flags.writeable:
            raise ValueError(f"{name} is read-only")
        if not memory.flags.forc and _overlaps_itself(memory):
            raise ValueError(f"{name} is an overlapping or broadcast view: several of its elements share memory")
        return out

    def _memory_of(self, out: Any) -> Any:
        return out.addresses() if self.on_device else out


def frame_of(name: str, array: Array, time_axis: int, names_time_axis: bool = True) -> Frame:
    if array.ndim == 0:
        raise ValueError(f"{name} is a scalar; expected an array{' with a time axis' * names_time_axis}")
    axis = integer_of(time_axis)
    if axis is None:
        raise TypeError(f"time_axis must be an integer, got {shown(time_axis)}")
    if not -array.ndim <= axis < array.ndim:
        dimensions = f"{array.ndim} dimension{'s'[: array.ndim > 1]}"
        raise ValueError(f"time_axis={shown(axis)} is out of range for {name} with {dimensions}")
    return Frame(name, array.shape, axis % array.ndim, isinstance(array, OnDevice), names_time_axis)


def as_flags(name: str, given: object, check: Callable[[str, Array], None] | None = None) -> Array:
    """Return flags as a bool array; ``check`` is called before their values are looked at."""
    array = widened(as_array(name, given))
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and array.dtype.itemsize == 1):  # one float8 has "f"
        raise TypeError(f"{name} must hold bool, or numbers that are 0 or 1, got {array.dtype}")
    if check is not None:
        check(name, array)
    if array.dtype.kind == "b" or isinstance(array, OnDevice):  # on a GPU, any flag but 0 is True
        return array
    ones: Array = np.equal(array, 1)
    # NumPy counts integers fast, but floats one by one, so floats are counted as bool.
    if np.count_nonzero(ones) != np.count_nonzero(array.astype(bool) if array.dtype.kind == "f" else array):
        where = tuple(int(i) for i in np.argwhere(ones != (array != 0))[0])
        may_be_discounts = array.dtype.kind == "f" and "mask" not in name  # a mask is no flag of an end
        discounts = may_be_discounts and ((array >= 0) & (array <= 1)).all() and len(np.unique(array)) <= 2
        advice = f"; if these are discounts, pass {name}=discounts == 0 and their gamma" if discounts else ""
        raise ValueError(f"{name} must hold 0 or 1, got {array[where]} at index {where}{advice}")
    return ones


def as_unit_interval(name: str, given: Any, check: Callable[[str, Array], None] | None = None) -> Any:
    """Return a float, or a float64 array; all numbers must be in [0, 1]. ``check`` is called as in ``as_flags``."""
    if type(given) is not float:
        check_wide(name, given)
        if getattr(given, "ndim", 0) or isinstance(given, list | tuple | OnDevice):
            array = as_array(name, given)
            check_wide(name, array)  # a list may hold numbers of 16 bits
            return _unit_intervals(name, as_numbers(name, array).astype(np.float64), check)
        given = as_number(name, given, "a number in [0, 1], or an array of them", "biuf", TypeError)
    if not 0.0 <= given <= 1.0:
        percent = f"; do you mean {given / 100:g}?" if given in range(50, 101) else ""
        raise ValueError(f"{name} must be in [0, 1], got {shown(given)}{percent}")
    return given


def _unit_intervals(name: str, array: Array, check: Callable[[str, Array], None] | None) -> Array:
    if check is not None:
        check(name, array)
    if isinstance(array, OnDevice):
        return array
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all():
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(f"{name} must be in [0, 1], got {array[where]} at index {where}")
    return array


def _overlaps_itself(array: Array) -> bool:
    """Return whether two elements share a byte. All offsets are compared only if the strides of axes interleave."""
    axes = sorted((abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1)
    extent = array.itemsize
    for stride, length in axes:
        if stride < array.itemsize:
            return True
        if stride < extent:
            break  # the axes interleave, which only strides set by hand do
        extent += stride * (length - 1)
    else:
        return False
    offsets: Array = functools.reduce(np.add.outer, [np.arange(length) * stride for stride, length in axes])
    return bool((np.diff(np.sort(offsets, axis=None)) < array.itemsize).any())
