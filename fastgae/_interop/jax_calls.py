"""Make calls with JAX arrays, also in code that JAX traces."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fastgae import _threads
from fastgae._call import Array, GAEResult
from fastgae._interop import jax_xla
from fastgae._interop.arrays import of_call
from fastgae._interop.batches import Batch
from fastgae._interop.conversion import as_array, given_back, taken
from fastgae._interop.functions import FUNCTIONS, dtype_of_results, gives_two
from fastgae._interop.jax import from_numpy, to_numpy
from fastgae._interop.libraries import is_tensor

ALIGNMENT = 64  # bytes; JAX copies memory that begins at any other address


def computed(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with JAX arrays that hold numbers."""
    arrays = taken(arguments, jax.Array, to_numpy)
    if "out" in arrays:
        shape, dtype = next(iter(arrays.values())).shape, dtype_of_results(function, arrays)
        out = tuple(_aligned(shape, dtype) for _ in range(1 + gives_two(function)))
        arrays["out"] = out if gives_two(function) else out[0]
    return given_back(function(**arrays), from_numpy)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array whose memory JAX takes without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the results of a callback that makes the call when the traced code runs."""
    if function.__name__ not in FUNCTIONS:
        raise TypeError(f"{function.__name__} needs the numbers themselves: call it outside of jax.jit")
    dtypes_alone = {
        name: np.empty(0, given.dtype) if isinstance(given, jax.Array) else given for name, given in arguments.items()
    }
    dtype = jax.dtypes.canonicalize_dtype(dtype_of_results(function, dtypes_alone))
    first = next(iter(arguments))
    if jax_xla.takes(arguments):
        results = jax_xla.call(function, arguments, dtype)
    else:
        results = callback(function, arguments, first, dtype, 1 + gives_two(function), Batch.results)
    return GAEResult(*results) if gives_two(function) else results[0]


def callback(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    first: str,
    dtype: np.dtype[Any],
    count: int,
    results_of: Callable[[Batch], tuple[Array, ...]],
) -> list[jax.Array]:
    """Return the results of a function that gets NumPy arrays when the traced code runs. They have no gradient.

    There are ``count`` results of this dtype, in the shape of the argument with the name ``first``. ``results_of``
    makes the calls of a batch.
    """
    traced = {name: given for name, given in arguments.items() if isinstance(given, jax.Array)}
    # A batch splits arrays, so each must be a NumPy array, and a masked array would lose its mask.
    others = {
        name: as_array(name, given) if name == first or isinstance(given, np.ndarray) or is_tensor(given) else given
        for name, given in arguments.items()
        if name not in traced
    }
    ranks = {name: array.ndim for name, array in traced.items()}

    def computed(*given: Any) -> list[Array]:
        arrays = {name: of_call(name, _waited_for(array)) for name, array in zip(ranks, given, strict=True)}
        results = results_of(Batch(function, others | arrays, ranks, first))
        return [result.astype(dtype, copy=False) for result in results]

    like = [jax.ShapeDtypeStruct(np.shape(arguments[first]), dtype)] * count
    # A callback has no derivative. stop_gradient tells JAX to treat these results as constants.
    results: list[jax.Array] = jax.pure_callback(
        computed, like, *map(jax.lax.stop_gradient, traced.values()), vmap_method="expand_dims"
    )
    return results


def _waited_for(array: jax.Array) -> Array:
    """Return an argument of a callback as a NumPy array, or raise an error if JAX would wait for ever.

    JAX copies large arguments in a thread of its own. On one CPU it has a single thread, and the callback occupies it.
    """
    if not array.is_ready() and _threads.affinity() == 1 and jax.default_backend() == "cpu":
        raise RuntimeError(
            "on one CPU, JAX has only one thread, in which this callback would wait for ever: call fastgae "
            "outside of jax.jit, or let the process run on two CPUs"
        )
    return np.asarray(array)
