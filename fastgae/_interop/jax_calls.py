"""Make calls with JAX arrays, also in code that JAX traces."""

import enum
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from fastgae._call import ROLES, Array, Role
from fastgae._interop import jax_xla
from fastgae._interop.arrays import NO_ARRAYS, OnDevice, as_setting, is_narrow, native, taken
from fastgae._interop.jax import (
    canonical,
    check_array,
    computes,
    from_numpy,
    is_small,
    numpys_promotion,
    placed,
    settled,
    to_numpy,
)
from fastgae._interop.libraries import WITHOUT_NUMBERS, any_traced, as_array, dtype_of_results, gives_two
from fastgae._support import memory

NOT_IN_PROGRAMS = ("backend", "out", "stop_gradients")
NEVER_TRACED = (Role.SETTING, Role.CONSTANT)
ALIGNMENT = 64  # bytes; JAX copies memory that begins at any other address


def computed(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with JAX arrays, which JAX itself computes where one is traced, or not on the CPU."""
    if computes(arguments.values()) and (function.__name__ in WITHOUT_NUMBERS or any_traced(arguments.values())):
        return traced(function, arguments)
    arrays = taken(arguments, jax.Array, to_numpy)
    first = next(iter(arrays.values()))
    if "out" in arrays and not is_small(first):
        shape, dtype = first.shape, dtype_of_results(function, arrays)
        out = tuple(_aligned(shape, dtype) for _ in range(1 + gives_two(function)))
        arrays["out"] = out if gives_two(function) else out[0]
    return from_numpy(function(**arrays), next(iter(arguments.values())))


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array whose memory JAX takes without a copy."""
    size = math.prod(shape) * dtype.itemsize
    space = memory.empty((size + ALIGNMENT,), np.dtype(np.uint8), "C")
    begin = -space.ctypes.data % ALIGNMENT
    return space[begin : begin + size].view(dtype).reshape(shape)


def traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the results of a call in code that JAX traces. They are constants, unless the call keeps gradients.

    On the CPU, XLA calls the compiled module. Anywhere else, without that module, and for derivatives, JAX itself
    computes the call.
    """
    if function.__name__ not in WITHOUT_NUMBERS:
        raise TypeError(f"{function.__name__} needs the numbers themselves: call it outside of jax.jit")
    arrays, settings = _split(arguments)
    mine = {name: array for name, array in arrays.items() if isinstance(array, jax.Array)}
    others = {name: array for name, array in arrays.items() if name not in mine}
    if arguments.get("stop_gradients", True):
        return placed(lambda mine: _called(function, settings, others | jax.lax.stop_gradient(mine)), mine)
    call = jax.custom_jvp(lambda mine: _called(function, settings, others | mine))

    def derivative(primals: Any, tangents: Any) -> Any:
        (mine,), (moves,) = primals, tangents
        moves = {name: move for name, move in moves.items() if not isinstance(move, SymbolicZero)}
        still = {name: array for name, array in (others | mine).items() if name not in moves}
        moved = {name: mine[name] for name in moves}
        results, derivatives = jax.jvp(lambda moved: _lowered(function, settings, still | moved), (moved,), (moves,))
        # The kernel also refuses wrong numbers, which the lowering cannot see.
        results = call(mine) if jax_xla.is_ready() else results
        return results, derivatives

    call.defjvp(derivative, symbolic_zeros=True)
    return placed(call, mine)


def _called(function: Callable[..., Any], settings: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the results of a call whose derivative is never taken."""
    lowered = functools.partial(_lowered, function, settings)
    if not jax_xla.is_ready():
        return lowered(arrays)
    # The lowering says what is wrong, and what the results are like. It has no traced settings.
    defaults = {name: _default(function, name) for name in arrays if ROLES.get(name) in NEVER_TRACED}
    shown = {name: array for name, array in arrays.items() if name not in defaults}
    like = jax.eval_shape(lambda: _lowered(function, settings | defaults, shown))
    compiled = functools.partial(jax_xla.call, function, settings, like)
    # NumPy's arrays are constants in both, because as operands they would lose their float64.
    mine = {name: array for name, array in arrays.items() if isinstance(array, jax.Array)}
    return jax.lax.platform_dependent(
        mine, cpu=lambda mine: compiled(arrays | mine), default=lambda mine: lowered(arrays | mine)
    )


def _default(function: Callable[..., Any], name: str) -> Any:
    default = inspect.signature(function).parameters[name].default
    return 1 if default is inspect.Parameter.empty else default


def _lowered(function: Callable[..., Any], settings: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the results of a call as JAX itself computes them."""
    if settings.get("backend") is not None:
        raise TypeError(f"JAX computes this call, and backend={settings['backend']!r} does not: leave backend out")
    if traced := [name for name in arrays if ROLES.get(name) in NEVER_TRACED]:
        raise TypeError(
            f"{traced[0]} is an array, and in a program of JAX it must be a number that does not "
            f"change: make it static, jax.jit(..., static_argnames={traced[0]!r})"
        )
    given = {name: each for name, each in settings.items() if name not in NOT_IN_PROGRAMS}
    # The text tells settings apart that are equal, such as 0.0 and -0.0, or 1 and True.
    key = tuple((name, repr(each), each) for name, each in given.items())
    wide = canonical(np.float64) == np.float64
    with numpys_promotion():  # gamma and lambda are multiplied in float64, and so are numbers of NumPy in float64
        return _program(function, key, wide, arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _program(function: Callable[..., Any], settings: tuple[Any, ...], wide: bool, arrays: dict[str, Any]) -> Any:
    """Return the results of a function of arrays whose numbers are not known yet."""
    held = {}
    for name, array in arrays.items():
        dtype = np.dtype(np.float32) if is_narrow(array.dtype) else array.dtype  # 16-bit floats are read as float32
        held[name] = OnDevice(array, array.shape, dtype, "xla")
    results = function(**held, **{name: given for name, _, given in settings})
    narrow = {} if wide else {np.dtype(np.float64): np.float32}
    return jax.tree.map(lambda result: result.astype(narrow.get(result.dtype, result.dtype)), results)


def _split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of a call, all in JAX or NumPy, and its other arguments."""
    arrays, settings = {}, {}
    for name, given in arguments.items():
        if isinstance(given, jax.Array):
            check_array(name, given)
            arrays[name] = settled(given)
        elif isinstance(given, enum.Enum):
            settings[name] = as_setting(name, given)
        elif ROLES.get(name) in NEVER_TRACED and isinstance(given, np.generic | np.ndarray) and given.ndim == 0:
            settings[name] = given.item()
        elif type(given) in NO_ARRAYS:
            settings[name] = given
        else:
            arrays[name] = native(as_array(name, given))
            if arrays[name].dtype.kind in "USO":
                raise TypeError(f"{name} has dtype {arrays[name].dtype}, which no program of JAX holds: pass integers")
    return arrays, settings
