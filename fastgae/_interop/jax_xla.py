"""Calls in code that JAX compiles for the CPU: XLA calls the compiled module, with pointers to its own arrays.

The first execution of a program makes an ordinary call, which checks the arguments. If the compiled module's short cut
accepts the call, the module keeps it, and all further executions need neither Python nor its lock. What the short cut
declines, such as a wrong number, is an ordinary call every time, and its error ends the program.
"""

import contextlib
import ctypes
import functools
import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fastgae._call import Array, GAEResult, Role, names_of
from fastgae._interop.jax import numpys_promotion, varying
from fastgae._interop.libraries import WITHOUT_NUMBERS, dtype_of_results, gives_two, takes_out

TARGET = "fastgae"
INTEGERS = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
# By their numbers in XLA, which begin at 1.
DTYPES = {**dict(enumerate((*INTEGERS, np.float16, np.float32, np.float64), 1)), 16: jax.numpy.bfloat16}
MOST_TRIES = 3  # to record a call; the numbers of an execution may be the reason why the short cut declines it
BROADCAST = names_of(Role.COEFFICIENT, Role.FACTORS)
PER_ENV = names_of(Role.ENVS, Role.MOMENTS)
ENV_FLAGS = names_of(Role.ENV_FLAGS)
# The arguments whose arrays may get more environments. Any other argument is one value for a whole call.
OF_ENVS = (*names_of(Role.STEPS, Role.STEP_FLAGS), *PER_ENV, *ENV_FLAGS, *BROADCAST)
SETTINGS = names_of(Role.SETTING)
Shape = tuple[int, ...]

_tries = Counter[str]()

with contextlib.suppress(ImportError):  # JAX 0.5 without absl, which cannot export; before 0.8, jax does not import it
    from jax import export

    export.register_namedtuple_serialization(GAEResult, serialized_name="fastgae.GAEResult")


@functools.cache
def is_ready() -> bool:
    """Return whether XLA can call the compiled module; tell XLA about it first."""
    try:
        import fastgae._core as _core

        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
        major, minor = (int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR"))  # type: ignore[index]
    except (ImportError, OSError, TypeError):  # no compiled module, or another header
        return False
    if major != 0:
        return False
    jax.ffi.register_ffi_target(TARGET, _core.xla_handler(minor, _computed), platform="cpu")
    return True


def call(function: Callable[..., Any], settings: dict[str, Any], like: Any, arrays: dict[str, Any]) -> Any:
    """Return the results of a call in a compiled program, in the shapes and dtypes of ``like``.

    A batch of trajectories becomes the environments of one call. Any other batch is a loop in the compiled module.
    """
    one = jax.custom_batching.custom_vmap(functools.partial(_foreign, function, settings, like))

    def batched(size: int, in_batch: list[dict[str, bool]], arrays: dict[str, Any]) -> Any:
        (moved,) = in_batch
        like_all = jax.tree.map(lambda each: jax.ShapeDtypeStruct((*each.shape, size), each.dtype), like)
        if _is_trajectory(settings, like, arrays, moved):
            wide = {name: _of_envs(name, array, size, moved[name]) for name, array in arrays.items()}
            results = jax.tree.map(jax.numpy.transpose, call(function, settings, like_all, wide))
        else:
            results = jax.vmap(one.fun, ({name: 0 if each else None for name, each in moved.items()},))(arrays)
        return results, jax.tree.map(lambda _: True, like)

    one.def_vmap(batched)
    with numpys_promotion():
        return one(arrays)


def _is_trajectory(settings: dict[str, Any], like: Any, arrays: dict[str, Any], moved: dict[str, bool]) -> bool:
    """Return whether a call has one axis, time, and a batch of such calls may become environments of one call."""
    (steps, *others), *_ = (each.shape for each in jax.tree.leaves(like))
    shapes = {name: array.shape[moved[name] :] for name, array in arrays.items()}
    return not others and settings.get("time_axis") == 0 and may_join(settings, shapes, (steps,))


def _of_envs(name: str, array: Any, size: int, moved: bool) -> Any:
    """Return an argument of a trajectory as one of many: time is the first axis, and the batch the second."""
    if name in BROADCAST:
        front, own = array.shape[:moved] or (1,), array.shape[moved:] or (1,)
        return array.reshape(front + own).T if array.ndim else array
    return (array if moved else jax.numpy.broadcast_to(array, (size, *array.shape))).T


def _foreign(function: Callable[..., Any], settings: dict[str, Any], like: Any, arrays: dict[str, Any]) -> Any:
    arrays = {name: arrays[name] for name in inspect.signature(function).parameters if name in arrays}
    key = json.dumps([function.__name__, {name: given.ndim for name, given in arrays.items()}, settings])
    flat, form = jax.tree.flatten(like)
    types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in flat]  # JAX refuses some other types of its own
    with numpys_promotion():  # arrays of NumPy in float64 stay as they are
        results = jax.ffi.ffi_call(TARGET, types, vmap_method="expand_dims")(*arrays.values(), call=key)
    return jax.tree.unflatten(form, varying(results, arrays.values()))


def may_join(settings: dict[str, Any], shapes: dict[str, Shape], like: Shape) -> bool:
    """Return whether calls may become environments of one call. ``shapes`` are those of the arrays in one call."""
    return (
        all(name in OF_ENVS for name in shapes)
        # Global moments are taken over all environments of a call, and would mix different calls.
        and not any(settings.get(name) == "global" for name in SETTINGS)
        # A number of one env stands for the envs of all calls.
        and all(settings.get(name) is None for name in ENV_FLAGS)
        and shapes.get("final_values", like) == like
    )


class Batch:
    """The arrays and the other arguments of a batch of calls; the results have the shape of the first array.

    ``ranks`` has the number of axes of each array in one call. The axes of the batch come before these.
    """

    def __init__(
        self, function: Callable[..., Any], settings: dict[str, Any], arrays: dict[str, Array], ranks: dict[str, int]
    ):
        self.function, self.settings, self.arrays, self.ranks = function, settings, arrays, ranks
        self.shape = np.broadcast_shapes(*map(self.front, arrays))
        first = next(iter(arrays))
        self.rank, self.first_shape = ranks[first], self.own(first)

    def front(self, name: str) -> Shape:
        """Return the lengths of an array's batch axes: 1 if the array is the same for all calls."""
        return self.arrays[name].shape[: self.arrays[name].ndim - self.ranks[name]]

    def own(self, name: str) -> Shape:
        """Return the shape of an array in one call."""
        return self.arrays[name].shape[self.arrays[name].ndim - self.ranks[name] :]

    def results(self) -> tuple[Array, ...]:
        """Return the results of all calls, with the axes of the batch first: of one call with more envs, or of many."""
        if not self.shape:
            return self.call(self.arrays)
        # More environments of one call are computed much faster than many calls.
        if not may_join(self.settings, {name: self.own(name) for name in self.arrays}, self.first_shape):
            return self.one_by_one()
        time_axis = self.settings["time_axis"]
        moved = time_axis + len(self.shape) if time_axis >= 0 else time_axis
        return self.call({name: self.in_front(name) for name in self.arrays}, time_axis=moved)

    def call(self, arrays: dict[str, Array], **changed: Any) -> tuple[Array, ...]:
        """Return the results of one call."""
        results = self.function(**{**self.settings, **arrays, **changed})
        return results if isinstance(results, tuple) else (results,)

    def in_front(self, name: str) -> Array:
        """Return an array with the axes of the batch before those that it has in one call."""
        if name in PER_ENV and not self.own(name):  # one number in a call stands for its envs
            axes = (1,) * (self.rank - 1)
            without_time = np.delete(self.first_shape, self.settings["time_axis"])
            return np.broadcast_to(self.arrays[name].reshape(*self.front(name), *axes), (*self.shape, *without_time))
        if name not in BROADCAST:
            return self.everywhere(name)
        # One number in a call gets the axes of the first argument, so that the batch stays in front.
        front = self.front(name) or (1,) * len(self.shape)
        return self.arrays[name].reshape(*front, *(1,) * (self.rank - self.ranks[name]), *self.own(name))

    def everywhere(self, name: str) -> Array:
        """Return an array broadcast to the whole batch."""
        return np.broadcast_to(self.arrays[name], self.shape + self.own(name))

    def one_by_one(self) -> tuple[Array, ...]:
        """Return the results of a call for every index of the batch."""
        arrays = {name: self.everywhere(name) for name in self.arrays}
        calls = [self.call({name: array[index] for name, array in arrays.items()}) for index in np.ndindex(*self.shape)]
        return tuple(np.reshape(results, self.shape + self.first_shape) for results in zip(*calls, strict=True))


Described = tuple[int, int, tuple[int, ...]]  # address, dtype, shape


def _array(described: Described) -> Array:
    """Return the NumPy array of XLA's memory."""
    address, number, shape = described
    dtype = np.dtype(DTYPES[number])
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


def _computed(key: str, inputs: list[Described], outputs: list[Described]) -> None:
    """Fill the results of a call that is not recorded, and record it if the short cut accepts it."""
    name, ranks, settings = json.loads(key)
    arrays = dict(zip(ranks, map(_array, inputs), strict=True))
    results = list(map(_array, outputs))
    function = WITHOUT_NUMBERS[name]
    batch = Batch(function, settings, arrays, ranks)
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity
        for result, computed in zip(results, batch.results(), strict=True):
            np.copyto(result, computed, casting="unsafe")
    _record(key, function, batch, settings, results[0].dtype)  # XLA makes no calls with empty results


def _record(
    key: str, function: Callable[..., Any], batch: Batch, settings: dict[str, Any], dtype: np.dtype[Any]
) -> None:
    """Make one call of a batch again while the compiled module looks on."""
    import fastgae._core as _core

    one = {name: array[(0,) * len(batch.front(name)) + (...,)] for name, array in batch.arrays.items()}
    if _tries[key] >= MOST_TRIES or not takes_out(function) or dtype_of_results(function, settings | one) != dtype:
        return
    _tries[key] += 1
    outputs = tuple(np.empty(batch.first_shape, dtype) for _ in range(1 + gives_two(function)))
    out = outputs if gives_two(function) else outputs[0]
    _core.record_call(key, tuple(one.values()), outputs, lambda: function(**{**settings, **one, "out": out}))
