"""Arrays of JAX, which cannot be written to."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fastgae._kinds import widened


def to_numpy(name: str, array: jax.Array) -> NDArray[Any]:
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced by JAX, and the first argument is no array of JAX: pass jax.numpy.asarray of it"
        )
    if elsewhere := [device for device in array.devices() if device.platform != "cpu"]:
        raise TypeError(f"{name} is on {elsewhere[0]}, and fastgae computes on the CPU: pass jax.device_get({name})")
    return widened(np.asarray(array))


def from_numpy(array: NDArray[Any]) -> jax.Array:
    """JAX copies memory that is not aligned to 64 bytes, and has no float64 where that is not enabled."""
    return jax.dlpack.from_dlpack(array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False))
