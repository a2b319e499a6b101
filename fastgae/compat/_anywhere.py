"""Run a function of compat where its arrays are: in NumPy or in torch, and in code that torch or JAX compiles."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fastgae._engine import dispatch
from fastgae._interop.libraries import any_traced, converter, kind_of
from fastgae.compat._arguments import Body

STOPS = "stop_target_gradients"  # a function with this argument has gradients in JAX
Function = TypeVar("Function", bound=Callable[..., Any])


def in_numpy(like: str = "", **shapes: str) -> Callable[[Function], Function]:
    """Let a function that is written for NumPy arrays take any arrays on the CPU. ``Body`` checks and reads them."""

    def decorated(compute: Function) -> Function:
        body = Body(compute, like, shapes)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            return compute(**body.read(body.bound(positional, named)))

        return function  # type: ignore[return-value]

    return decorated


def anywhere(like: str, **shapes: str) -> Callable[[Function], Function]:
    """Let a function that is written for NumPy arrays and tensors take arrays of any library, on any device.

    ``Body`` checks and reads them. ``like`` names the argument whose library, device and shape the results have.
    Their dtype is the one to which the library promotes all ``Numbers``, or its default float dtype if none of them is
    a float.

    NumPy computes arrays and tensors on the CPU. torch computes tensors on a GPU, where they stay, and tensors in code
    that it compiles or transforms. JAX computes arrays that it traces, and arrays on other devices.
    """

    def decorated(compute: Function) -> Function:
        body = Body(compute, like, shapes)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            return _called(body, body.bound(positional, named))

        return function  # type: ignore[return-value]

    return decorated


def namespace_of(array: Any) -> Any:
    """Return NumPy, torch or jax.numpy: the module whose functions take this array."""
    if isinstance(array, np.ndarray):
        return np
    return sys.modules["torch" if kind_of(array) == "torch" else "jax.numpy"]


def constant(array: Any) -> Any:
    """Return an array without gradients, also where a transformation looks for them; NumPy's as it is."""
    if kind_of(array) == "torch":
        return array.detach()
    return sys.modules["jax"].lax.stop_gradient(array) if kind_of(array) == "jax" else array


def moved(array: Any, axis: int, to: int) -> Any:
    """Return ``numpy.moveaxis`` of an array; ``torch.func.vmap`` has no rule for torch's."""
    return array.movedim(axis, to) if kind_of(array) == "torch" else namespace_of(array).moveaxis(array, axis, to)


def _called(body: Body, given: dict[str, Any]) -> Any:
    first = given[body.like]
    if kind_of(first) == "torch":
        # Import statements here and below, because torch.compile follows them.
        from fastgae._interop.torch import computes

        if computes(first):
            return _in_torch(body, given, first)
    elif any_traced(given.values()) or kind_of(first) == "jax":
        from fastgae._interop import jax

        if jax.computes(given.values()):
            return _in_jax(body, given)
    taken = body.read(given)
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        result = body.compute(**taken)
    convert = converter(first, body.numbers_in(given))
    return result if convert is None else _each(convert, result)


def _in_torch(body: Body, given: dict[str, Any], first: Any) -> Any:
    """Return the results for tensors on one device, as tensors there."""
    from fastgae._interop.torch import is_compiling, on_device, promoted
    from fastgae._interop.torch_devices import as_tensor, check_device, floats, held

    like, numbers = body.like, body.numbers
    check_device(like, first)
    if on_device(first) and not is_compiling():
        dispatch.on_devices(like, held(like, first))
    taken = {name: constant(as_tensor(name, each, like, first)) for name, each in given.items()}
    if STOPS in body.readers:
        taken[STOPS] = True
    if not is_compiling():
        taken |= body.read({name: each for name, each in taken.items() if kind_of(each) is None})
    taken.update({name: floats(name, taken[name]) for name in numbers if name in taken})
    dtype = promoted(body.numbers_in(given))
    return _each(lambda result: result.to(dtype), body.compute(**taken))


def _in_jax(body: Body, given: dict[str, Any]) -> Any:
    """Return the results for arrays that JAX traces, or that are not on the CPU."""
    from fastgae._interop.jax import as_array, numpys_promotion, promoted, settled

    read = body.read({name: each for name, each in given.items() if kind_of(each) != "jax"})
    dtype = promoted(body.numbers_in(given))
    given = {name: settled(each) if kind_of(each) == "jax" else each for name, each in given.items()}
    with numpys_promotion():  # as in NumPy, integers become float64 in here
        taken = {name: as_array(read.get(name, each), name in body.numbers) for name, each in given.items()}
        if STOPS not in body.readers:
            taken = {name: constant(each) for name, each in taken.items()}
        return _each(lambda result: result.astype(dtype), body.compute(**taken))


def _each(convert: Callable[[Any], Any], result: Any) -> Any:
    """Convert one result, or each of several."""
    return getattr(result, "_make", tuple)(map(convert, result)) if isinstance(result, tuple) else convert(result)
