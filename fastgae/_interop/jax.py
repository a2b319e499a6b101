"""Convert JAX arrays, which cannot be written to."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from fastgae._call import Array, GAEResult
from fastgae._interop.arrays import NO_ARRAYS

if jax.__version_info__ < (0, 5):  # which cannot call the compiled module: jax.numpy would round the last bit otherwise
    raise ImportError(f"jax {jax.__version__} is too old: fastgae needs JAX 0.5 or newer")

SMALL = 512 * 1024  # bytes


@contextlib.contextmanager
def numpys_promotion() -> Iterator[None]:
    """Let code promote dtypes and ranks as NumPy does, whatever JAX is set to.

    JAX before 0.8 would fail with float64: it keeps to float32.
    """
    float64 = contextlib.nullcontext() if jax.__version_info__ < (0, 8) else jax.enable_x64(True)
    with float64, jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def settled(array: jax.Array) -> jax.Array:
    """Return a traced array as one whose numbers have its dtype: ``jax.vmap`` may keep NumPy's float64 behind it."""
    return jax.numpy.copy(array) if isinstance(array, jax.core.Tracer) else array


def placed(function: Callable[[Any], Any], arrays: dict[str, jax.Array]) -> Any:
    """Return the results of a function of arrays, sharded as the first one where a mesh has explicit axes.

    JAX then wants to know of each operation how its results are sharded. Inside of the function, the compiler decides.
    """
    sharding = getattr(getattr(next(iter(arrays.values())), "aval", None), "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    kinds = zip(getattr(mesh, "axis_names", ()), getattr(mesh, "axis_types", None) or (), strict=False)
    explicit = tuple(axis for axis, kind in kinds if getattr(kind, "name", None) == "Explicit")
    if not explicit:  # inside of shard_map, some axes may be explicit, but not all
        return function(arrays)
    return jax.sharding.auto_axes(function, axes=explicit, out_sharding=sharding)(arrays)


def varying(results: Iterable[jax.Array], arrays: Iterable[jax.Array]) -> list[jax.Array]:
    """Return results of which JAX does not know yet that they vary over devices of ``jax.shard_map``, as arrays do."""
    axes = set[str]().union(*map(_varies_over, arrays))
    if not axes:
        return [*results]
    by = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    return [by(result, tuple(sorted(axes.difference(_varies_over(result))))) for result in results]


def _varies_over(array: jax.Array) -> Iterable[str]:
    aval = getattr(array, "aval", None)
    kind = getattr(aval, "manual_axis_type", None)  # before JAX 0.10, `vma`
    axes: Iterable[str] = getattr(aval, "vma", ()) if kind is None else kind.varying
    return axes


def canonical(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that JAX has for one of NumPy's: float32 for float64 where that is not enabled."""
    result: np.dtype[Any] = jax.dtypes.canonicalize_dtype(dtype)
    return result


def to_numpy(name: str, array: jax.Array) -> Array:
    """Return a NumPy array in the same memory. For bfloat16, its dtype comes from ml_dtypes."""
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced by JAX and has no numbers yet: call this outside of jax.jit, or pass a JAX array as the "
            "first argument"
        )
    _check_dtype(name, array.dtype)
    if elsewhere := beyond_the_cpu(array.sharding):
        raise TypeError(f"{name} is on {elsewhere[0]}, and fastgae computes on the CPU: pass jax.device_get({name})")
    return np.asarray(array)


def check_array(name: str, array: jax.Array) -> None:
    """Raise an error if an array holds no numbers, or has a length that only ``jax.export`` knows, by a name."""
    _check_dtype(name, array.dtype)
    if not all(isinstance(length, int) for length in array.shape):
        raise TypeError(f"{name} has shape {array.shape}; expected lengths that are numbers: export each shape alone")


@functools.lru_cache  # JAX takes a microsecond to look at a dtype
def _check_dtype(name: str, dtype: Any) -> None:
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"{name} has dtype {dtype}, a key of jax.random; expected an array of numbers")


def from_numpy(given: Any, like: jax.Array) -> Any:
    """Return what a function has returned, with arrays of JAX: float64 as float32 unless JAX enables float64.

    They lie on the devices of ``like``, if somebody has chosen those and the shapes are equal. Large aligned memory is
    not copied.
    """
    if not isinstance(given, GAEResult | np.ndarray):
        return given
    first = given if isinstance(given, np.ndarray) else next(each for each in given if each is not None)
    chosen = like.sharding if like.committed and like.shape == first.shape else None
    if (dtype := canonical(first.dtype)) != first.dtype:
        given = _converted(given, dtype)
    return _copied(given) if chosen is None and is_small(first) else jax.device_put(given, chosen)


# JAX compiles a program for each shape either way, and asarray outside of one takes three times as long.
_asarray = jax.jit(
    lambda given, dtype: jax.tree.map(lambda each: jax.numpy.asarray(each, dtype), given), static_argnums=1
)


def _copied(given: Any, dtype: Any = None) -> Any:
    try:
        return _asarray(given, dtype)
    except jax.errors.JaxRuntimeError:  # jax.transfer_guard("disallow") is on, and means code that can use device_put
        return jax.device_put(given if dtype is None else _converted(given, dtype))


def _converted(given: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):  # a number beyond the dtype becomes infinity
        return jax.tree.map(lambda each: each.astype(dtype), given)


def is_small(array: Array | jax.Array) -> bool:
    """Return whether JAX copies an array sooner than it takes its memory: two of 512 KiB, 60 us sooner."""
    return array.nbytes <= SMALL


def promoted(numbers: Iterable[object]) -> np.dtype[Any]:
    """Return the dtype to which JAX promotes the arrays among these, or its default if none has floats."""
    dtypes = [each.dtype for each in numbers if isinstance(each, jax.Array | np.ndarray)]
    dtype = functools.reduce(jax.numpy.promote_types, dtypes)
    floats = jax.numpy.issubdtype(dtype, jax.numpy.floating)
    return canonical(dtype if floats else float)


def computes(given: Iterable[object]) -> bool:
    """Return whether JAX computes with an array among these, and not NumPy: it is traced, or not on the CPU."""
    arrays = (each for each in given if type(each) not in NO_ARRAYS and isinstance(each, jax.Array))
    return any(isinstance(each, jax.core.Tracer) or beyond_the_cpu(each.sharding) for each in arrays)


def may_be_read(given: tuple[Any, ...]) -> bool:
    """Return whether NumPy may compute a call of these arguments, and JAX copies the results soonest."""
    return not computes(given) and is_small(given[0])


@functools.lru_cache
def beyond_the_cpu(sharding: jax.sharding.Sharding) -> tuple[jax.Device, ...]:
    """Return the devices that NumPy cannot read. To look at each takes longer than the call of a small rollout."""
    return tuple(device for device in sharding.device_set if device.platform != "cpu")


def as_array(given: Any, floats: bool) -> Any:
    """Return a NumPy array as an array of JAX, and anything but arrays as it is. ``floats``: of 32 or 64 bits."""
    if not isinstance(given, jax.Array | np.ndarray):
        return given
    dtype = promoted([given]) if floats else given.dtype
    return jax.numpy.asarray(given, np.float32 if floats and dtype.itemsize == 2 else dtype)


def converter(numbers: Iterable[object]) -> Callable[[Array], jax.Array]:
    """Return the function that turns results in NumPy into arrays of the dtype to which JAX promotes the numbers."""
    return functools.partial(_copied, dtype=promoted(numbers))
