"""Arrays whose numbers the CPU does not read, on a GPU or in a program that JAX compiles, and 16-bit floats."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from fastgae._call import Array, GAEResult

NARROW_FLOATS = ("bfloat16", "float16")
# The types of most arguments, for which isinstance would take long to find out that they are no arrays. JAX's programs
# can hold them as text.
NO_ARRAYS = frozenset((type(None), bool, int, float, str))


# A dtype is recognised by the name of its type, here as in ml_dtypes.
class bfloat16(np.void):  # type: ignore[misc]  # noqa: N801
    """Two bytes that are a bfloat16, for programs without ml_dtypes. NumPy itself has no such dtype."""


BFLOAT16 = np.dtype((bfloat16, "V2"))


@dataclass(eq=False, slots=True)
class OnDevice:
    """A tensor or an array whose numbers the checks must not read: on a GPU, in a program of JAX, or to differentiate.

    The checks see its dtype, shape and addresses. To read its numbers would wait for the GPU, and JAX may not have them
    yet.
    ``dtype`` is a NumPy dtype; for 16-bit floats it is float32, because they are read as float32.
    """

    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    backend: str = "triton"  # computes a call whose first argument this is
    slot: int = 0  # which argument of the call it is

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any, copy: bool = True) -> "OnDevice":
        """Return the array with another dtype. Kernels convert what they read, so nothing is copied."""
        return OnDevice(self.array, self.shape, np.dtype(dtype), self.backend, self.slot)

    def reshape(self, shape: tuple[int, ...]) -> "OnDevice":
        """Return the array with axes of length 1 added or taken away, which needs no copy."""
        return OnDevice(self.array.reshape(shape), shape, self.dtype, self.backend, self.slot)

    def addresses(self) -> Array:
        """Return a NumPy array with the same addresses, to compare them. The CPU must not read or write that memory."""
        tensor, itemsize = self.array, self.array.element_size()
        interface = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * itemsize for stride in tensor.stride()),
            "typestr": f"|V{itemsize}",
        }
        return np.asarray(SimpleNamespace(__array_interface__=interface))

    def __repr__(self) -> str:
        return f"an array on {getattr(self.array, 'device', 'the device of JAX')}"


class Planned(NamedTuple):
    """A result of ``OnDevice`` arrays: the memory of a slot, once the plan has been run."""

    plan: Any
    slot: int


def broadcast_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Return a view that repeats an array along its axes of length 1."""
    if isinstance(array, OnDevice):
        # A tensor repeats itself without a copy. An array of JAX is repeated where it is read.
        repeated = array.array.expand(shape) if hasattr(array.array, "expand") else array.array
        return cast(Array, OnDevice(repeated, shape, array.dtype, array.backend, array.slot))
    return np.broadcast_to(array, shape)


def as_setting(name: str, given: Any) -> Any:
    """Return a setting as programs hold it: for a member of an Enum its name, or the number or text that it is."""
    if not isinstance(given, Enum):
        return given
    return given.value if isinstance(given, int | float | str) and name != "autoreset" else given.name


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.kind in "fV" and dtype.type.__name__ in NARROW_FLOATS


def check_wide(name: str, given: object) -> None:
    """Raise an error if a coefficient is a number or an array of 16 bits, of any library."""
    # Where torch compiles, a number of NumPy has a size, but no dtype.
    dtype = getattr(given, "dtype", None) if getattr(given, "itemsize", 2) == 2 else None
    narrow = is_narrow(dtype) if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2] in NARROW_FLOATS
    if narrow:
        word = dtype.type.__name__ if isinstance(dtype, np.dtype) else dtype
        raise TypeError(f"{name} has dtype {word}, in which 0.99 is another number: pass float32 or float64")


def widened(array: Array) -> Array:
    """Return 16-bit floats as float32, which can represent all of them; return any other array unchanged."""
    if not is_narrow(array.dtype):
        return array
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    stored = np.dtype(np.uint16).newbyteorder(array.dtype.byteorder)
    bits = array.view(stored).astype(np.uint32)  # a bfloat16 is the upper half of a float32
    return np.left_shift(bits, np.uint32(16), out=bits).view(np.float32)


def native(array: Array) -> Array:
    """Return an array as torch and JAX read it: in this machine's order of bytes, and 16-bit floats as float32."""
    wide = widened(array)
    return wide.astype(wide.dtype.newbyteorder("="), copy=False)


def taken(arguments: dict[str, Any], array_type: type, to_numpy: Callable[[str, Any], Array]) -> dict[str, Any]:
    """Return the arguments of a call in which the arrays of one type are NumPy arrays."""
    return {
        name: to_numpy(name, given) if type(given) not in NO_ARRAYS and isinstance(given, array_type) else given
        for name, given in arguments.items()
    }


def given_back(result: Any, from_numpy: Callable[[Array], Any]) -> Any:
    """Return what a function has returned, with each of its arrays converted."""
    if isinstance(result, GAEResult):
        return GAEResult(*[each if each is None else from_numpy(each) for each in result])
    return from_numpy(result) if isinstance(result, np.ndarray) else result
