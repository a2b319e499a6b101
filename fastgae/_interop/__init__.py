"""Arrays of libraries other than NumPy: torch tensors and JAX arrays.

* ``arrays.py`` says to which library an array belongs, and reads any array as a NumPy array.
* ``torch.py`` and ``jax.py`` convert the arrays of one library, and make calls with them.
* ``torch_devices.py`` makes calls with tensors on a GPU, which stay there.
* ``calls.py`` registers the public functions and passes a call to the module of its library.
* ``torch_ops.py`` has the operations that stand for the functions in code that torch compiles.
* ``batches.py`` turns the calls that ``jax.vmap`` batches into one call.
* ``conversion.py`` converts the arguments and results of ``fastgae.compat``.

Nothing here imports torch or JAX before the caller does: if the caller passes an array of a library, the library is
already imported.
"""

from fastgae._interop.arrays import (
    OnDevice,
    any_traced,
    as_array,
    as_numbers,
    broadcast_to,
    is_narrow,
    is_weak,
    kind_of,
    module_of,
    widened,
)
from fastgae._interop.calls import FUNCTIONS, is_tensor, takes_tensors, with_tensors
from fastgae._interop.conversion import as_floats, as_numpy, converter, on_the_cpu

__all__ = [
    "FUNCTIONS",
    "OnDevice",
    "any_traced",
    "as_array",
    "as_floats",
    "as_numbers",
    "as_numpy",
    "broadcast_to",
    "converter",
    "is_narrow",
    "is_tensor",
    "is_weak",
    "kind_of",
    "module_of",
    "on_the_cpu",
    "takes_tensors",
    "widened",
    "with_tensors",
]
