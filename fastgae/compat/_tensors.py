"""Tensors of torch and arrays of JAX -> NumPy, and results back to the kind of the input. Imports neither by itself."""

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


def like(result: Array, given: Any) -> Any:
    """The result as the kind of array that was given: its library, its device and its dtype."""
    library = library_of(given)
    if library == "torch":
        torch = importlib.import_module("torch")
        return torch.from_numpy(result).to(device=given.device, dtype=given.dtype)
    if library == "jax":
        jax = importlib.import_module("jax.numpy")
        return jax.asarray(result, dtype=given.dtype)
    return result
