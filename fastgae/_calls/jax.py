"""Calls with arrays of JAX."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fastgae import _threads
from fastgae._calls import FUNCTIONS, dtype_of_results, gives_two
from fastgae._calls.batches import Batch
from fastgae._canonical import Array, GAEResult
from fastgae._kinds import widened
from fastgae._kinds.jax import from_numpy, to_numpy

ALIGNMENT = 64  # bytes: JAX copies what begins elsewhere


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if arguments.get("out") is not None:
        raise TypeError("out cannot be filled: arrays of JAX never change; leave it out")
    if any(isinstance(given, jax.core.Tracer) for given in arguments.values()):
        return _traced(function, arguments)
    taken = {
        name: to_numpy(name, given) if isinstance(given, jax.Array) else given for name, given in arguments.items()
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
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """A callback in place of the call. Gradients end before it."""
    if function.__name__ not in FUNCTIONS:
        raise TypeError(f"{function.__name__} needs the numbers themselves: call it outside of jax.jit")
    traced = {name: given for name, given in arguments.items() if isinstance(given, jax.Array)}
    others = {name: given for name, given in arguments.items() if name not in traced}
    ranks, (first, *_) = {name: array.ndim for name, array in traced.items()}, traced
    dtypes = {name: widened(np.empty(0, array.dtype)) for name, array in traced.items()}
    dtype = jax.dtypes.canonicalize_dtype(dtype_of_results(function, {**arguments, **dtypes}))

    def computed(*given: Any) -> list[Array]:
        arrays = {name: _waited_for(array) for name, array in zip(ranks, given, strict=True)}
        results = Batch(function, others | arrays, ranks, first).results()
        return [result.astype(dtype, copy=False) for result in results]

    like = [jax.ShapeDtypeStruct(traced[first].shape, dtype)] * (1 + gives_two(function))
    # stop_gradient: a callback has no derivative, and what is computed here are constants to a loss.
    results = jax.pure_callback(computed, like, *map(jax.lax.stop_gradient, traced.values()), vmap_method="expand_dims")
    return GAEResult(*results) if gives_two(function) else results[0]


def _waited_for(array: jax.Array) -> Array:
    """An argument of a callback. JAX copies large ones in a thread of its own; on one CPU, that is this one."""
    if not array.is_ready() and _threads.affinity() == 1 and jax.default_backend() == "cpu":
        raise RuntimeError(
            "JAX has one thread on one CPU, and would wait in it for ever for what it has to do there: call fastgae "
            "outside of jax.jit, or let the process run on two CPUs"
        )
    return widened(np.asarray(array))
