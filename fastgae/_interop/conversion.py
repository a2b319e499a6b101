"""Read the arguments of ``fastgae.compat`` as NumPy arrays, and return its results in the library of the arguments."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._interop.arrays import as_array, as_numbers, kind_of, module_of, widened


def on_the_cpu(array: Any) -> Array:
    """Return a NumPy array without gradients, copied if a GPU holds it, for environments and buffers on the CPU."""
    if kind_of(array) == "torch":
        return widened(module_of("torch").to_numpy("the tensor", array.cpu()))
    return widened(np.asarray(array))


def as_floats(name: str, given: object) -> Array:
    """Return an argument as floats. Integers become float64, so that no coefficient is rounded to an integer."""
    numbers = as_numbers(name, widened(as_array(name, given)))
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
    made: Callable[[Array], Any] = module_of(kind).converter(numbers)
    return made
