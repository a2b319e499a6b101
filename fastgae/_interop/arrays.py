"""Find the library that an array belongs to, and convert the array to NumPy's."""

import importlib
import sys
from types import ModuleType

import numpy as np

from fastgae._call import WORKING_DTYPES, Array

ARRAY_TYPES = {"torch": "Tensor", "jax": "Array"}
NARROW_FLOATS = ("bfloat16", "float16")


def kind_of(given: object) -> str | None:
    """Return "torch" or "jax" for an array of that library, and None for anything else."""
    for library, name in ARRAY_TYPES.items():
        if isinstance(given, getattr(sys.modules.get(library), name, ())):
            return library
    return None


def module_of(kind: str) -> ModuleType:
    """Import the module of this package that converts the arrays of a library."""
    return importlib.import_module(f"fastgae._interop.{kind}")


def widened(array: Array) -> Array:
    """Return an array of 16-bit floats as float32, because no kernel takes them; return any other as it is."""
    return array.astype(np.float32) if array.dtype.name in NARROW_FLOATS else array


def as_array(name: str, given: object) -> Array:
    """Return an argument as NumPy's array, of the same memory where that is possible."""
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and its mask would be lost: pass a plain array")
    if kind := kind_of(given):
        array: Array = module_of(kind).to_numpy(name, given)
        return array
    try:
        return np.asarray(given)
    except MemoryError:
        raise
    except Exception as error:  # An object's own __array__ or __len__ may raise an exception of any type.
        same = ValueError if isinstance(error, ValueError) else TypeError
        raise same(f"{name} cannot be read as an array: {error}") from error


def as_numbers(name: str, given: object) -> Array:
    """Return an argument as NumPy's array, whose dtype must be one that the kernels take, or integers."""
    array = as_array(name, given)
    if array.dtype in WORKING_DTYPES or array.dtype.kind in "biu" or array.dtype.newbyteorder("=") in WORKING_DTYPES:
        return array
    raise TypeError(f"{name} has dtype {array.dtype}; expected float32, float64 or integers: convert it first")


def is_weak(given: object) -> bool:
    """Return whether an argument has no effect on the dtype of results: a Python number, or an empty list."""
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)
