"""Arrays that are not NumPy's: tensors of torch and arrays of JAX, one module for each, all with the same functions.

``to_numpy(name, array)``: NumPy's array of the same memory; TypeError where it is not on the CPU.
``from_numpy(array)``: an array of this kind, of the same memory where the library takes it.

Neither library is imported before the caller has: who has one of its arrays has it loaded.
"""

import importlib
import sys
from types import ModuleType

TYPES = {"torch": "Tensor", "jax": "Array"}


def kind_of(given: object) -> str | None:
    """The library whose array this is; None for NumPy's and for what is no array."""
    for library, name in TYPES.items():
        if isinstance(given, getattr(sys.modules.get(library), name, ())):
            return library
    return None


def module_of(kind: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{kind}")
