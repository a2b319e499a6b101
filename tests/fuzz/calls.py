"""A call as data: a public function, its arguments, and how each array is handed over."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import numpy as np

from fastgae._call import NUMBERS, ROLES, Role
from fastgae._interop.arrays import BFLOAT16
from support.functions import parameters

from .layouts import Layout
from .memory import POISON, Arena

PER_ENV = (Role.ENVS, Role.ENV_FLAGS, Role.MOMENTS)
OUTSIDE = ("num_threads", "backend")  # these stand in ``Call.how``, or are chosen by the check


def upper_halves(array: np.ndarray) -> np.ndarray:
    """Return the upper 16 bits of every float32, which are a bfloat16."""
    return (np.array(array, order="C").view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)


def everywhere(flags: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return flags that lack trailing axes, or have length 1 there, for every step of a shape."""
    return np.broadcast_to(flags.reshape(*flags.shape, *(1,) * (len(shape) - flags.ndim)), shape)


@dataclass(frozen=True)
class Given:
    """One array of a call: its elements, and how they are handed over."""

    plain: np.ndarray
    layout: Layout
    kind: str = "array"  # or "list", "readonly", "bfloat16": then the elements are such numbers, as float32
    at_end: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", np.asarray(self.plain))  # NumPy returns one element as a number

    def made(self, arena: Arena, time: int) -> Any:
        if self.kind == "list":
            return self.plain.tolist()
        plain = upper_halves(self.plain) if self.kind == "bfloat16" else self.plain
        array = arena.array(plain, self.layout.place(plain.ndim, time, self.at_end))
        array.flags.writeable = self.kind != "readonly"
        return array

    @property
    def dtype(self) -> np.dtype:
        return np.asarray(self.plain.tolist()).dtype if self.kind == "list" else self.plain.dtype.newbyteorder("=")


@dataclass(frozen=True)
class Alias:
    """An output in the memory of an input: its first or last steps, in their order or backwards."""

    name: str
    index: tuple[slice, ...]


@dataclass(frozen=True)
class Over:
    """An output, contiguous, in memory that an input shares, which begins some bytes after it or before it."""

    name: str
    shape: tuple[int, ...]
    shift: int

    def made(self, arena: Arena, dtype: np.dtype, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the output, and the input, of these elements, in its memory."""
        own, other = max(0, -self.shift), max(0, self.shift)
        nbytes = int(np.prod(self.shape)) * dtype.itemsize
        memory = np.full(max(own + nbytes, other + shared.nbytes), POISON, np.uint8)
        memory[other : other + shared.nbytes] = np.frombuffer(shared.tobytes(), np.uint8)
        return arena.shared(memory, (self.shape, dtype, own), (shared.shape, shared.dtype, other))


@dataclass
class Call:
    """A function of fastgae and its arguments. ``out`` stands apart, because it is made anew for every run."""

    function: str
    arguments: dict[str, Any]
    out: Any = None  # one output or a list of them: a Given, an Alias, an Over, or anything else as it is
    wrong: list[str] = field(default_factory=list)  # the mistakes that were made on purpose
    how: dict[str, Any] = field(default_factory=dict)  # num_threads

    @property
    def first(self) -> Any:
        return self.arguments.get(next(iter(self.parameters())))

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.first.plain if isinstance(self.first, Given) else self.first)

    @property
    def time_axis(self) -> int:
        """Return the axis of time, not negative; 0 where the argument is wrong."""
        try:
            axis, ndim = operator.index(self.arguments.get("time_axis", 0)), len(self.shape)
        except TypeError:
            return 0
        return axis % ndim if -ndim <= axis < ndim else 0

    @property
    def is_flat(self) -> bool:
        """Return whether the arrays hold many sequences or trees, end to end."""
        return any(ROLES[name] in (Role.BOUNDARIES, Role.PARENTS) for name in self.parameters())

    def plain(self, name: str) -> Any:
        """Return an argument as the oracle takes it: an array by its elements, anything else as it is.

        Flags of steps have the shape of the first argument, and what is per env has it without time.
        """
        given = self.arguments.get(name)
        if not isinstance(given, Given):
            return given
        if ROLES[name] is Role.STEP_FLAGS:
            return everywhere(given.plain, self.shape)
        one_step = ROLES[name] in PER_ENV and given.plain.ndim == len(self.shape) and not self.is_flat
        return given.plain[(slice(None),) * self.time_axis + (0,)] if one_step else given.plain

    def working_dtype(self) -> np.dtype:
        """Return the dtype that NumPy promotes the numbers to, without those of Python; bool if there are none."""
        numbers = [self.arguments[name] for name in NUMBERS if name in self.arguments]
        dtypes = [given.dtype for given in numbers if isinstance(given, Given | np.generic | np.ndarray)]
        dtypes = [dtype for dtype in dtypes if dtype.kind not in "mMOUS"]  # a mistake, which promotes to nothing
        if not dtypes:
            return np.dtype(bool)
        promoted = np.result_type(*dtypes)  # numbers of 16 bits are computed in float32
        return np.dtype(np.float32 if promoted in (np.float16, np.float32) else np.float64)

    def parameters(self) -> Mapping[str, Parameter]:
        return parameters(self.function)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would write down every field

    def __repr__(self) -> str:
        lines = [f"fastgae.{self.function}("]
        lines += [f"    {name}={_described(given)}," for name, given in self.arguments.items()]
        if self.out is not None:
            lines.append(f"    out={_described(self.out)},")
        lines += [f"    {name}={given!r}," for name, given in self.how.items()]
        return "\n".join([*lines, ")" + (f"  # wrong on purpose: {', '.join(self.wrong)}" if self.wrong else "")])


def _described(given: object) -> str:
    if isinstance(given, list | tuple):
        return f"({', '.join(map(_described, given))})"
    if not isinstance(given, Given):
        return repr(given)
    array, odd = given.plain, "" if given.kind == "array" else f" as {given.kind}"
    with np.printoptions(threshold=24, precision=9):
        numbers = np.array2string(array, separator=",").replace("\n", "")
    beginning = "" if given.at_end else ", at the beginning of its memory"
    return f"{array.dtype}{list(array.shape)}{odd} [{given.layout.name}{beginning}] {numbers}"
