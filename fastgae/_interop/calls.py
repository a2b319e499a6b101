"""Pass a call with arrays of another library to the module of that library."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from fastgae._call import NUMBERS, GAEResult, working_dtype
from fastgae._interop.arrays import as_array, is_weak, kind_of, number_dtype

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

# The public functions that return arrays, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def takes_tensors(function: Function) -> Function:
    """Register a function and return it."""
    FUNCTIONS[function.__name__] = function
    return function


def is_tensor(given: object) -> bool:
    """Return whether this is an array of a library other than NumPy."""
    return kind_of(given) is not None


def with_tensors(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Call a function with arrays of other libraries and return its results in the library of its first argument.

    Code that torch compiles or JAX traces gets an operation of that library, which makes the call when it runs.
    """
    arguments.pop("misnamed", None)  # it is empty; it is there because `arguments` are the locals of a function
    # These are import statements because torch.compile follows a statement, but not importlib.
    if kind_of(next(iter(arguments.values()))) == "torch":
        from fastgae._interop.torch import call
    else:
        from fastgae._interop.jax import call
    result: Result = call(function, arguments)
    return result


@functools.cache
def gives_two(function: Callable[..., Any]) -> bool:
    """Return whether a function returns advantages and returns, and not one array."""
    return get_origin(get_type_hints(function)["return"]) is GAEResult


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
