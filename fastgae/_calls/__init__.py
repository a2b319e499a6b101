"""A call with arrays that are not NumPy's -> the same call with NumPy's, and its results in their kind.

One module for each kind, with one function: ``call(function, arguments)``. What torch compiles or JAX traces becomes
an operation of theirs, which makes the call when it runs.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fastgae._call import GAEResult, working_dtype
from fastgae._kinds import kind_of

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

# The arguments whose dtypes decide on that of the results.
NUMBERS = (
    *("rewards", "values", "last_values", "next_values", "final_values", "last_advantages", "ratios"),
    *("x", "decay", "initial", "advantages"),
)

# The public functions that give arrays, by their names.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def takes_tensors(function: Function) -> Function:
    """Registers a function; it is left as it is, so that NumPy's arrays pay nothing."""
    FUNCTIONS[function.__name__] = function
    return function


def is_tensor(given: object) -> bool:
    return kind_of(given) is not None


def with_tensors(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """The function's results as the kind of its first argument."""
    if kind_of(next(iter(arguments.values()))) == "torch":
        from fastgae._calls.torch import call  # torch.compile follows a statement, but not importlib
    else:
        from fastgae._calls.jax import call
    result: Result = call(function, arguments)
    return result


def gives_two(function: Callable[..., Any]) -> bool:
    """Whether it gives advantages and returns, and not one array."""
    return function.__annotations__["return"] is GAEResult


def dtype_of_results(function: Callable[..., Any], arguments: dict[str, Any]) -> np.dtype[Any]:
    """From NumPy's arrays, of which only the dtypes count, and Python's numbers."""
    numbers = {name: given for name, given in arguments.items() if name in NUMBERS}
    from fastgae._canonical import of_one_dtype

    return of_one_dtype(**numbers)[0].dtype if numbers else np.dtype(bool)
