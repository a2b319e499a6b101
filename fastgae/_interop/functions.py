"""The public functions that return arrays, and the number and dtype of their results."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from fastgae._call import NUMBERS, GAEResult, working_dtype
from fastgae._interop.conversion import as_array, is_weak, number_dtype

Function = TypeVar("Function", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def takes_tensors(function: Function) -> Function:
    """Register a function and return it."""
    FUNCTIONS[function.__name__] = function
    return function


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
    return working_dtype(dtype for name, dtype in dtypes.items() if not is_weak(numbers[name]))


@functools.cache  # inspect takes longer than a small call
def _optional(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the arguments that may be None."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(parameter.name for parameter in parameters if parameter.default is None)
