"""Tensors of torch and arrays of JAX -> NumPy, and results back to the kind of the input. Imports neither by itself."""

import functools
import importlib
from typing import Any

import numpy as np

from fastgae._canonical import Array
from fastgae._kinds import kind_of, module_of, widened


def library_of(array: object) -> str:
    """ "torch", "jax", or "numpy" for all else."""
    return kind_of(array) or "numpy"


def numpy_of(array: Any) -> Array:
    """A NumPy array, of the same memory where the CPU holds it; gradients end here."""
    if kind_of(array) == "torch":
        given: Array = module_of("torch").to_numpy("the tensor", array.cpu())
        return given
    return widened(np.asarray(array))


def numbers_of(array: Any) -> Array:
    """The same for what is computed with: integers become float64, so that no coefficient is rounded to one of them."""
    numbers = numpy_of(array)
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)


def like(result: Array, *given: Any) -> Any:
    """Return the result as the first input's kind of array, on its device.

    Its dtype is the one to which the library promotes all inputs, or its default float where all are integers.
    """
    library = library_of(given[0])
    dtypes = {array.dtype for array in given if library_of(array) == library != "numpy"}
    if library == "torch":
        torch = importlib.import_module("torch")
        dtype = functools.reduce(torch.promote_types, dtypes)
        floats = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return torch.from_numpy(result).to(device=given[0].device, dtype=floats)
    if library == "jax":
        jax = importlib.import_module("jax.numpy")
        dtype = jax.result_type(*dtypes)
        return jax.asarray(result, dtype=dtype if jax.issubdtype(dtype, jax.floating) else float)
    return result
