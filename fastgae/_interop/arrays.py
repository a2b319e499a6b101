"""Find the library to which an array belongs, and convert the array to a NumPy array."""

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

import numpy as np

from fastgae._call import NUMBERS, WORKING_DTYPES, Array

ARRAY_TYPES = {"torch": "Tensor", "jax": "Array"}
NARROW_FLOATS = ("bfloat16", "float16")


# A dtype is recognised by the name of its type, here as in ml_dtypes.
class bfloat16(np.void):  # type: ignore[misc]  # noqa: N801
    """Two bytes that are a bfloat16, for programs without ml_dtypes. NumPy itself has no such dtype."""


BFLOAT16 = np.dtype((bfloat16, "V2"))


class OnDevice:
    """An array in the memory of a GPU. The checks see its dtype, shape and addresses.

    Nothing ever reads its numbers on the CPU, because that would wait for the GPU. ``dtype`` is a NumPy dtype; for
    16-bit floats it is float32, because they are read as float32.
    """

    __slots__ = ("array", "dtype", "shape")

    def __init__(self, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.array = array
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any, copy: bool = True) -> "OnDevice":
        """Return the array with another dtype. Kernels convert what they read, so nothing is copied."""
        return OnDevice(self.array, self.shape, np.dtype(dtype))

    def reshape(self, shape: tuple[int, ...]) -> "OnDevice":
        """Return the array with axes of length 1 added or taken away, which needs no copy."""
        return OnDevice(self.array.reshape(shape), shape, self.dtype)

    def addresses(self) -> Array:
        """Return a NumPy array with the same addresses, to compare them. The CPU must not read or write that memory."""
        return np.asarray(_Addresses(self.array))

    def __repr__(self) -> str:
        return f"an array on {self.array.device}"


class _Addresses:
    """The addresses of the elements of a tensor, in the form that NumPy reads."""

    def __init__(self, tensor: Any):
        itemsize = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * itemsize for stride in tensor.stride()),
            "typestr": f"|V{itemsize}",
        }


def broadcast_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Return a view that repeats an array along its axes of length 1."""
    if isinstance(array, OnDevice):
        return cast(Array, OnDevice(array.array.expand(shape), shape, array.dtype))
    return np.broadcast_to(array, shape)


def kind_of(given: object) -> str | None:
    """Return "torch" or "jax" for an array of that library, and None for anything else."""
    for library, name in ARRAY_TYPES.items():
        if isinstance(given, getattr(sys.modules.get(library), name, ())):
            return library
    return None


def _kind_in_list(given: object) -> str | None:
    """Return the library of the arrays in a list."""
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return kind_of(given)


def any_traced(given: Iterable[object]) -> bool:
    """Return whether one of these is a JAX tracer, which has no numbers yet."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and any(isinstance(each, tracer) for each in given)


def module_of(kind: str) -> ModuleType:
    """Import the module of this package that converts the arrays of a library."""
    return importlib.import_module(f"fastgae._interop.{kind}")


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.kind in "fV" and dtype.type.__name__ in NARROW_FLOATS


def widened(array: Array) -> Array:
    """Return 16-bit floats as float32, which can represent all of them; return any other array unchanged."""
    if not is_narrow(array.dtype):
        return array
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    bits = array.view(np.uint16).astype(np.uint32)  # a bfloat16 is the upper half of a float32
    return np.left_shift(bits, 16, out=bits).view(np.float32)


def of_call(name: str, array: Array) -> Array:
    """Return an argument of a call. Backends read 16-bit numbers as they are; any other 16-bit array is widened."""
    return array if name in NUMBERS else widened(array)


def as_array(name: str, given: object) -> Array:
    """Return an argument as a NumPy array, in the same memory if possible."""
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, OnDevice):
        return cast(Array, given)
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and its mask would be lost: pass a plain array")
    if kind := kind_of(given):
        return widened(module_of(kind).to_numpy(name, given))
    if kind := _kind_in_list(given):
        stack = {"torch": "torch.stack", "jax": "jax.numpy.stack"}[kind]
        raise TypeError(f"{name} is a {type(given).__name__} of {kind} arrays: pass one array, {stack}({name})")
    try:
        return np.asarray(given)
    except MemoryError:
        raise
    except Exception as error:  # An object's own __array__ or __len__ may raise an exception of any type.
        same = ValueError if isinstance(error, ValueError) else TypeError
        raise same(f"{name} cannot be read as an array: {error}") from error


def as_numbers(name: str, given: object) -> Array:
    """Return an argument as a NumPy array of float32, float64 or integers. 16-bit floats become float32."""
    array = as_array(name, given)
    return array if array.dtype in WORKING_DTYPES or number_dtype(name, array) is array.dtype else widened(array)


def number_dtype(name: str, array: Array) -> np.dtype[Any]:
    """Return the dtype with which an array takes part in promotion, or raise an error if it does not hold numbers."""
    dtype = array.dtype
    if dtype.kind in "biu" or dtype.newbyteorder("=") in WORKING_DTYPES:
        return dtype
    if is_narrow(dtype):
        return WORKING_DTYPES[0]
    raise TypeError(f"{name} has dtype {dtype}; expected floats of 16, 32 or 64 bits, or integers: convert it first")


def is_weak(given: object) -> bool:
    """Return whether an argument has no effect on the dtype of results: a Python number, or an empty list."""
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)
