"""The libraries whose arrays fastgae takes, how any array is read as NumPy's, and the functions that take them.

A new library is a row of ``LIBRARIES``, and a module with its conversions.
"""

import functools
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast, get_origin, get_type_hints

import numpy as np

from fastgae._call import NUMBERS, WORKING_DTYPES, Array, GAEResult, working_dtype
from fastgae._interop.arrays import OnDevice, is_narrow, widened

Function = TypeVar("Function", bound=Callable[..., Any])

MOST_AXES = 64  # of NumPy's arrays


class Library(NamedTuple):
    """What fastgae must know of a library before somebody passes one of its arrays."""

    type: str  # the name of its arrays' type, in the module after which the row is named
    stack: str  # its function that makes one array of a list
    # Imports a module with these functions. `torch.py` is an example.
    #   may_be_read(given)         whether NumPy computes a call of these arguments, and not the library itself
    #   to_numpy(name, array)      a NumPy array in the same memory if possible
    #   from_numpy(results, like)  what a function has returned, with arrays of the library, as `like` is one
    #   converter(numbers)         the function that turns results into arrays of the dtype to which these are promoted
    conversions: Callable[[], ModuleType]


# Import statements, because torch.compile follows them, but not importlib.
def _torch() -> ModuleType:
    from fastgae._interop import torch

    return torch


def _jax() -> ModuleType:
    from fastgae._interop import jax

    return jax


LIBRARIES = {
    "torch": Library("Tensor", "torch.stack", _torch),
    "jax": Library("Array", "jax.numpy.stack", _jax),
}


def kind_of(given: object) -> str | None:
    """Return the name of the library whose array this is, and None for anything else."""
    for name in LIBRARIES:
        if isinstance(given, type_of(name)):
            return name
    return None


def type_of(library: str) -> Any:
    """Return the type of a library's arrays, or an empty tuple if nobody has imported the library."""
    return getattr(sys.modules.get(library), LIBRARIES[library].type, ())


def first_in_list(given: object) -> object:
    """Return the first element of a list of any depth, and anything else as it is."""
    for _ in range(MOST_AXES):  # a list may contain itself
        if not isinstance(given, list | tuple) or not given:
            break
        given = given[0]
    return given


def is_tensor(given: object) -> bool:
    """Return whether this is an array of a library other than NumPy."""
    return kind_of(given) is not None


def any_traced(given: Iterable[object]) -> bool:
    """Return whether one of these is a JAX tracer, which has no numbers yet."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and any(isinstance(each, tracer) for each in given)


def as_array(name: str, given: object) -> Array:
    """Return an argument as a NumPy array, in the same memory if possible."""
    if type(given) is np.ndarray:
        return given
    if given is None:
        raise TypeError(f"{name} must be an array, got None")
    if isinstance(given, str | bytes):
        raise TypeError(f"{name} is text, {given!r:.50}; expected an array of NumPy, torch or JAX, or a list")
    if isinstance(given, OnDevice):
        return cast(Array, given)
    if isinstance(given, GAEResult):
        raise TypeError(f"{name} is a GAEResult, which holds two arrays: pass one, such as result.advantages")
    if isinstance(first := first_in_list(given), np.ma.MaskedArray):
        raise TypeError(f"{name} is masked, and its mask would be lost: pass a plain array")
    if kind := kind_of(given):
        return widened(LIBRARIES[kind].conversions().to_numpy(name, given))
    if kind := kind_of(first):
        stack, nested = LIBRARIES[kind].stack, isinstance(given[0], list | tuple)  # type: ignore[index]
        stacked = f"{stack}([{stack}(row) for row in {name}])" if nested else f"{stack}({name})"
        raise TypeError(f"{name} is a {type(given).__name__} of {kind} arrays: pass one array, {stacked}")
    try:
        array = np.asarray(given)
    except MemoryError:
        raise
    except Exception as error:  # An object's own __array__ or __len__ may raise an exception of any type.
        check_library(name, given)
        same = ValueError if isinstance(error, ValueError) else TypeError
        if "inhomogeneous" in str(error):
            raise same(
                f"{name} has rows of different lengths: pad them and pass mask, or join them with "
                f"np.concatenate({name}), as gae_packed takes them"
            ) from error
        raise same(f"{name} cannot be read as an array: {error}") from error
    if array.dtype.kind == "O":
        check_library(name, given)
        if array.ndim == 0 and not isinstance(given, np.ndarray):
            what = ": pass one of its arrays" if isinstance(given, Mapping) else ""
            what = ": call it, and pass what it returns" if callable(given) else what
            kind = type(given).__name__
            raise TypeError(f"{name} is of type {kind}; expected an array of NumPy, torch or JAX, or a list{what}")
        if isinstance(one := next(array.flat, None), Mapping):
            raise TypeError(f"{name} holds dicts: pass one array, [each[{next(iter(one), 0)!r}] for each in {name}]")
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
    if dtype.kind in "biu" or (dtype.kind == "f" and dtype.newbyteorder("=") in WORKING_DTYPES):
        return dtype
    if is_narrow(dtype):
        return WORKING_DTYPES[0]
    how = f", np.array({name}, float)" if dtype.kind in "OUT" else ""
    raise TypeError(
        f"{name} has dtype {dtype}; expected floats of 16, 32 or 64 bits, or integers: convert it first{how}"
    )


def is_weak(given: object) -> bool:
    """Return whether an argument has no effect on the dtype of results: a Python number, or an empty list."""
    return type(given) in (int, float) or (isinstance(given, list | tuple) and not given)


def on_the_cpu(array: Any, name: str = "the array") -> Array:
    """Return a NumPy array without gradients, copied if a GPU holds it, for environments and buffers on the CPU."""
    if kind_of(array) == "torch":
        return widened(LIBRARIES["torch"].conversions().to_numpy(name, array.cpu()))
    try:
        return widened(np.asarray(array))
    except (TypeError, ValueError):
        return as_array(name, array)  # raises the error that names it


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
    if (kind := kind_of(first)) is None:
        return None
    made: Callable[[Array], Any] = LIBRARIES[kind].conversions().converter(numbers)
    return made


# The public functions that return arrays

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # programs of JAX and torch can hold their calls
WITHOUT_NUMBERS = ChainMap[str, Callable[..., Any]]({}, FUNCTIONS)  # and those that only programs of JAX hold


def takes_tensors(*, in_torch: bool = True) -> Callable[[Function], Function]:
    """Return the decorator that registers a function. ``in_torch``: each of its arguments has one type in torch."""

    def decorated(function: Function) -> Function:
        (FUNCTIONS if in_torch else WITHOUT_NUMBERS)[function.__name__] = function
        return function

    return decorated


@functools.cache
def gives_two(function: Callable[..., Any]) -> bool:
    """Return whether a function returns advantages and returns, and not one array."""
    return get_origin(get_type_hints(function)["return"]) is GAEResult


@functools.cache
def takes_out(function: Callable[..., Any]) -> bool:
    """Return whether a function can fill the caller's arrays."""
    return "out" in inspect.signature(function).parameters


def dtype_of_results(function: Callable[..., Any], arguments: dict[str, Any]) -> np.dtype[Any]:
    """Return the dtype of the results of a call, on which the shapes and contents of arrays have no effect."""
    optional = _optional(function)
    numbers = {
        name: given for name, given in arguments.items() if name in NUMBERS and not (given is None and name in optional)
    }
    if not numbers:
        return np.dtype(bool)  # A function of flags alone returns flags.
    dtypes = {name: number_dtype(name, as_array(name, given)) for name, given in numbers.items()}
    return working_dtype(*(dtype for name, dtype in dtypes.items() if not is_weak(numbers[name])))


@functools.cache  # inspect takes longer than a small call
def _optional(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the arguments that may be None."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(parameter.name for parameter in parameters if parameter.default is None)
