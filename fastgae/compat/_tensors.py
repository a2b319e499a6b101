"""Tensors of torch and arrays of JAX -> NumPy, and results back to the kind of the input. Imports neither by itself."""

import importlib
from typing import Any

import numpy as np

from fastgae._canonical import Array

# What NumPy has no type for, or fastgae no kernels, is computed in float32.
NARROW = ("torch.bfloat16", "torch.float16", "bfloat16", "float16")


def library_of(array: object) -> str:
    """ "torch", "jax", or "numpy" for all else."""
    package = type(array).__module__.partition(".")[0]
    return {"torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(package, "numpy")


def numpy_of(array: Any) -> Array:
    """A NumPy array, of the same memory where the CPU holds it; gradients end here."""
    if library_of(array) == "torch":
        array = array.detach()
        array = (array.float() if str(array.dtype) in NARROW else array).cpu().numpy()
    result: Array = np.asarray(array)
    return result.astype(np.float32) if result.dtype.name in NARROW else result


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
