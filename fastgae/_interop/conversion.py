"""Read any array as a NumPy array, and return results in the library of the arguments."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from fastgae._call import WORKING_DTYPES, Array, GAEResult
from fastgae._interop.arrays import OnDevice, is_narrow, of_call, widened
from fastgae._interop.libraries import LIBRARIES, kind_in_list, kind_of


def as_array(name: str, given: object) -> Array:
    """Return an argument as a NumPy array, in the same memory if possible."""
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, OnDevice):
        return cast(Array, given)
    if isinstance(given, GAEResult):
        raise TypeError(f"{name} is a GAEResult, which holds two arrays: pass one, such as result.advantages")
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and its mask would be lost: pass a plain array")
    if kind := kind_of(given):
        return widened(LIBRARIES[kind].conversions().to_numpy(name, given))
    if kind := kind_in_list(given):
        stacked = f"{LIBRARIES[kind].stack}({name})"
        raise TypeError(f"{name} is a {type(given).__name__} of {kind} arrays: pass one array, {stacked}")
    try:
        array = np.asarray(given)
    except MemoryError:
        raise
    except Exception as error:  # An object's own __array__ or __len__ may raise an exception of any type.
        check_library(name, given)
        same = ValueError if isinstance(error, ValueError) else TypeError
        raise same(f"{name} cannot be read as an array: {error}") from error
    if array.dtype.kind == "O":
        check_library(name, given)
        if array.ndim == 0 and not isinstance(given, np.ndarray):
            what = ": pass one of its arrays" if isinstance(given, Mapping) else ""
            what = ": call it, and pass what it returns" if callable(given) else what
            kind = type(given).__name__
            raise TypeError(f"{name} is of type {kind}; expected an array of NumPy, torch or JAX, or a list{what}")
    return array


def check_library(name: str, given: object) -> None:
    """Raise an error if torch could read this array of a library that fastgae does not know, such as CuPy."""
    protocols = {"__dlpack__": "from_dlpack({})", "__cuda_array_interface__": "as_tensor({}, device='cuda')"}
    for protocol, line in protocols.items():
        if hasattr(type(given), protocol) and not isinstance(given, np.ndarray):
            library = type(given).__module__.partition(".")[0]
            raise TypeError(f"{name} is an array of {library}: pass a tensor, torch.{line.format(name)}")


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


def taken(arguments: dict[str, Any], array_type: type, to_numpy: Callable[[str, Any], Array]) -> dict[str, Any]:
    """Return the arguments of a call in which the arrays of one type are NumPy arrays."""
    return {
        # Most arguments are None, and isinstance takes long to find out.
        name: given if given is None or not isinstance(given, array_type) else of_call(name, to_numpy(name, given))
        for name, given in arguments.items()
    }


def given_back(result: Any, from_numpy: Callable[[Array], Any]) -> Any:
    """Return what a function has returned, with each of its arrays converted."""
    if isinstance(result, GAEResult):
        return GAEResult(*map(from_numpy, result))
    return from_numpy(result) if isinstance(result, np.ndarray) else result


def on_the_cpu(array: Any) -> Array:
    """Return a NumPy array without gradients, copied if a GPU holds it, for environments and buffers on the CPU."""
    if kind_of(array) == "torch":
        return widened(LIBRARIES["torch"].conversions().to_numpy("the tensor", array.cpu()))
    return widened(np.asarray(array))


def as_floats(name: str, given: object) -> Array:
    """Return an argument as floats. Integers become float64, so that no coefficient is rounded to an integer."""
    numbers = as_numbers(name, given)
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)


def as_numpy(name: str, given: object) -> Any:
    """Return an argument as a NumPy array if it holds numbers of any kind, and unchanged if not."""
    holds_numbers = isinstance(given, list | tuple) or hasattr(given, "__array__")
    return widened(as_array(name, given)) if holds_numbers else given


def converter(first: object, numbers: Iterable[object]) -> Callable[[Array], Any] | None:
    """Return the function that turns results into arrays of the library of ``first``; None if that is NumPy.

    Their dtype is the one to which the library promotes all numbers, or its default float dtype if none is a float.
    """
    kind = kind_of(first)
    if kind is None:
        return None
    made: Callable[[Array], Any] = LIBRARIES[kind].conversions().converter(numbers)
    return made
