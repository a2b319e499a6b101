"""A call as data: a public function, its arguments, and how each array is handed over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import numpy as np

from fastgae._call import NUMBERS, ROLES, Role
from fastgae._interop.arrays import BFLOAT16
from support.functions import parameters

from .memory import Arena, Place


def upper_halves(array: np.ndarray) -> np.ndarray:
    """Return the upper 16 bits of every float32, which are a bfloat16."""
    return (np.array(array, order="C").view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)


@dataclass(frozen=True)
class Given:
    """One array of a call: its elements, and how they are handed over."""

    plain: np.ndarray
    place: Place
    kind: str = "array"  # or "list", "readonly", "bfloat16": then the elements are such numbers, as float32

    def made(self, arena: Arena) -> Any:
        if self.kind == "list":
            return self.plain.tolist()
        array = arena.array(upper_halves(self.plain) if self.kind == "bfloat16" else self.plain, self.place)
        array.flags.writeable = self.kind != "readonly"
        return array

    @property
    def dtype(self) -> np.dtype:
        return np.asarray(self.plain.tolist()).dtype if self.kind == "list" else self.plain.dtype.newbyteorder("=")


PER_ENV = (Role.ENVS, Role.ENV_FLAGS, Role.MOMENTS)


def everywhere(flags: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return flags that lack trailing axes, or have length 1 there, for every step of a shape."""
    return np.broadcast_to(flags.reshape(*flags.shape, *(1,) * (len(shape) - flags.ndim)), shape)


@dataclass(frozen=True)
class Alias:
    """An output in the memory of an input: its first or last steps, in their order or backwards."""

    name: str
    index: tuple[slice, ...]


@dataclass
class Call:
    """A function of fastgae and its arguments. ``out`` stands apart, because it is made anew for every run."""

    function: str
    arguments: dict[str, Any]
    time_axis: int = 0  # of the first argument, not negative
    out: list[Given | Alias | None] | None = None
    broken: str = ""  # which mistake was made on purpose
    how: dict[str, Any] = field(default_factory=dict)  # num_threads

    @property
    def first(self) -> Given:
        return next(iter(self.arguments.values()))

    def plain(self, name: str) -> Any:
        """Return an argument as the oracle takes it: an array by its elements, anything else as it is.

        Flags of steps have the shape of the first argument, and what is per env has it without time.
        """
        given = self.arguments.get(name)
        if not isinstance(given, Given):
            return given
        array, shape = given.plain, self.first.plain.shape
        if ROLES[name] is Role.STEP_FLAGS:
            return everywhere(array, shape)
        one_step = ROLES[name] in PER_ENV and array.ndim == len(shape) and not self.is_packed
        return array[(slice(None),) * self.time_axis + (0,)] if one_step else array

    @property
    def is_packed(self) -> bool:
        return any(ROLES[name] is Role.BOUNDARIES for name in self.arguments)

    def working_dtype(self) -> np.dtype:
        """Return the dtype that NumPy promotes the numbers to, without those of Python; bool if there are none."""
        numbers = [self.arguments[name] for name in NUMBERS if name in self.arguments]
        dtypes = [given.dtype for given in numbers if isinstance(given, Given | np.generic | np.ndarray)]
        if not dtypes:
            return np.dtype(bool)
        promoted = np.result_type(*dtypes)  # numbers of 16 bits are computed in float32
        return np.dtype(np.float32 if promoted in (np.float16, np.float32) else np.float64)

    def parameters(self) -> Mapping[str, Parameter]:
        return parameters(self.function)

    def __str__(self) -> str:
        lines = [f"fastgae.{self.function}("]
        for name, given in self.arguments.items():
            lines.append(f"    {name}={_described(given)},")
        if self.out is not None:
            lines.append(f"    out=({', '.join(map(_described, self.out))}),")
        lines += [f"    {name}={given!r}," for name, given in self.how.items()]
        return "\n".join([*lines, ")" + (f"  # broken on purpose: {self.broken}" if self.broken else "")])


def _described(given: object) -> str:
    if not isinstance(given, Given):
        return repr(given)
    array, odd = given.plain, "" if given.kind == "array" else f" as {given.kind}"
    with np.printoptions(threshold=24, precision=9):
        text = " ".join(np.array2string(array).split())
    repeated = [axis for axis, stride in enumerate(array.strides) if stride == 0 and array.shape[axis] > 1]
    again = f" repeated along {repeated}" * bool(repeated)
    return f"{array.dtype.str}{array.shape}{odd} {text[:160]} {given.place}{again}"
