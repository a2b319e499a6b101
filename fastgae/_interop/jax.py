"""Convert JAX arrays, which cannot be written to, and make calls with them."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from fastgae import _threads
from fastgae._call import Array, GAEResult
from fastgae._interop.arrays import as_array, of_call
from fastgae._interop.batches import Batch
from fastgae._interop.calls import FUNCTIONS, dtype_of_results, gives_two, is_tensor

ALIGNMENT = 64  # bytes; JAX copies memory that begins at any other address


def to_numpy(name: str, array: jax.Array) -> Array:
    """Return a NumPy array in the same memory. For bfloat16, its dtype comes from ml_dtypes."""
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced by JAX, and the first argument is not a JAX array: convert that with jax.numpy.asarray"
        )
    if elsewhere := [device for device in array.devices() if device.platform != "cpu"]:
        raise TypeError(f"{name} is on {elsewhere[0]}, and fastgae computes on the CPU: pass jax.device_get({name})")
    return np.asarray(array)


def from_numpy(array: Array) -> jax.Array:
    """Return a JAX array, in the same memory if that is aligned; float64 becomes float32 unless JAX enables float64."""
    return jax.dlpack.from_dlpack(array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False))


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with JAX arrays and return its results as JAX arrays."""
    if arguments.get("out") is not None:
        raise TypeError("out cannot be filled, because JAX arrays never change: leave it out")
    if any(isinstance(given, jax.core.Tracer) for given in arguments.values()):
        return _traced(function, arguments)
    taken = {
        name: of_call(name, to_numpy(name, given)) if isinstance(given, jax.Array) else given
        for name, given in arguments.items()
    }
    if "out" in taken:
        shape, dtype = next(iter(taken.values())).shape, dtype_of_results(function, taken)
        out = tuple(_aligned(shape, dtype) for _ in range(1 + gives_two(function)))
        taken["out"] = out if gives_two(function) else out[0]
    result = function(**taken)
    if isinstance(result, GAEResult):
        return GAEResult(*map(from_numpy, result))
    return from_numpy(result) if isinstance(result, np.ndarray) else result


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array whose memory JAX takes without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the results of a callback that makes the call when the traced code runs."""
    if function.__name__ not in FUNCTIONS:
        raise TypeError(f"{function.__name__} needs the numbers themselves: call it outside of jax.jit")
    dtypes_alone = {
        name: np.empty(0, given.dtype) if isinstance(given, jax.Array) else given for name, given in arguments.items()
    }
    dtype = jax.dtypes.canonicalize_dtype(dtype_of_results(function, dtypes_alone))
    first = next(name for name, given in arguments.items() if isinstance(given, jax.Array))
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


def promoted(numbers: Iterable[object]) -> np.dtype[Any]:
    """Return the dtype to which JAX promotes the arrays among these, or its default if none has floats."""
    dtypes = [each.dtype for each in numbers if isinstance(each, jax.Array | np.ndarray)]
    dtype = functools.reduce(jax.numpy.promote_types, dtypes)
    floats = jax.numpy.issubdtype(dtype, jax.numpy.floating)
    result: np.dtype[Any] = jax.dtypes.canonicalize_dtype(dtype if floats else float)
    return result


def converter(numbers: Iterable[object]) -> Callable[[Array], jax.Array]:
    """Return the function that turns results in NumPy into arrays of the dtype to which JAX promotes the numbers."""
    return functools.partial(jax.numpy.asarray, dtype=promoted(numbers))


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
