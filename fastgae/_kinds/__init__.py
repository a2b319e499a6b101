"""Arrays that are not NumPy's: tensors of torch and arrays of JAX, one module for each, all with the same functions.

``to_numpy(name, array)``: NumPy's array of the same memory; TypeError where that is not the CPU's.
``from_numpy(array)``: an array of this kind, of the same memory where the library takes it.

Gradients end at this border, and 16-bit floats become float32, in memory of their own. Neither library is imported
before the caller has: who has one of its arrays has loaded it.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {"torch": "Tensor", "jax": "Array"}
NARROW = ("bfloat16", "float16")


def kind_of(given: object) -> str | None:
    """The library whose array this is; None for NumPy's and for what is no array."""
    for library, name in TYPES.items():
        if isinstance(given, getattr(sys.modules.get(library), name, ())):
            return library
    return None


def module_of(kind: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{kind}")


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """What NumPy has no type for, or fastgae no kernels, in float32."""
    return array.astype(np.float32) if array.dtype.name in NARROW else array
