"""The libraries whose arrays fastgae takes. A new library is a row here, and a module with its conversions."""

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple


class Library(NamedTuple):
    """What fastgae must know of a library before somebody passes one of its arrays."""

    type: str  # the name of its arrays' type, in the library's own module
    stack: str  # its function that makes one array of a list
    # Imports a module with these functions. `torch.py` is an example.
    #   to_numpy(name, array)   a NumPy array in the same memory if possible
    #   from_numpy(array)       an array of the library
    #   converter(numbers)      the function that turns results into arrays of the dtype to which these are promoted
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


def kind_in_list(given: object) -> str | None:
    """Return the name of the library of the arrays in a list."""
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return kind_of(given)


def is_tensor(given: object) -> bool:
    """Return whether this is an array of a library other than NumPy."""
    return kind_of(given) is not None


def any_traced(given: Iterable[object]) -> bool:
    """Return whether one of these is a JAX tracer, which has no numbers yet."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and any(isinstance(each, tracer) for each in given)
