"""Arrays of JAX."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

NARROW = ("bfloat16", "float16")


def to_numpy(name: str, array: jax.Array) -> NDArray[Any]:
    """Read-only; 16-bit floats become a copy in float32."""
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced by JAX, so the first argument must be an array of JAX too: jax.numpy.asarray"
        )
    if elsewhere := [device for device in array.devices() if device.platform != "cpu"]:
        raise TypeError(f"{name} is on {elsewhere[0]}, and fastgae computes on the CPU: pass jax.device_get({name})")
    return widened(np.asarray(array))


def widened(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def from_numpy(array: NDArray[Any]) -> jax.Array:
    """JAX copies memory that is not aligned to 64 bytes, and has no float64 where that is not enabled."""
    return jax.dlpack.from_dlpack(array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False))
