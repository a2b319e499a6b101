"""Convert arrays of any library to NumPy's, and results to the library of the arguments, for ``fastgae.compat``."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._interop.arrays import kind_of, module_of, widened


def library_of(array: object) -> str:
    """Return "torch", "jax", or "numpy" for anything else."""
    return kind_of(array) or "numpy"


def numpy_of(array: Any) -> Array:
    """Return a NumPy array without gradients, of the same memory if the CPU holds it."""
    if kind_of(array) == "torch":
        return widened(module_of("torch").to_numpy("the tensor", array.cpu()))
    return widened(np.asarray(array))


def numbers_of(array: Any) -> Array:
    """Return a NumPy array of floats. Integers become float64, so that no coefficient is rounded to an integer."""
    numbers = numpy_of(array)
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)


def like(result: Array, *given: Any) -> Any:
    """Return the result as an array of the first input's library, on the first input's device.

    Its dtype is the one to which the library promotes all inputs, or its default float if all are integers.
    """
    library = library_of(given[0])
    if library == "torch":
        torch = importlib.import_module("torch")
        dtype = _promoted(torch.promote_types, torch.dtype, given)
        floats = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return torch.from_numpy(result).to(device=given[0].device, dtype=floats)
    if library == "jax":
        jax = importlib.import_module("jax")
        dtype = _promoted(jax.numpy.promote_types, np.dtype, given)
        return jax.numpy.asarray(result, dtype=dtype if jax.numpy.issubdtype(dtype, jax.numpy.floating) else float)
    return result


def _promoted(promote: Callable[[Any, Any], Any], kind: type, given: tuple[Any, ...]) -> Any:
    """Return the dtype to which a library promotes its own arrays; ``kind`` is the type of its dtypes."""
    dtype = given[0].dtype
    for array in given[1:]:
        other = getattr(array, "dtype", None)
        if other is not dtype and isinstance(other, kind):
            dtype = promote(dtype, other)
    return dtype
