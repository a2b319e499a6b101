"""Run a function of compat where its arrays are: in NumPy or in torch, and in code that torch or JAX compiles."""

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np

from fastgae import _dispatch
from fastgae._interop import any_traced, converter, kind_of
from fastgae.compat._arguments import Body

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_numpy(like: str = "", **shapes: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function that is written for NumPy arrays take any arrays on the CPU. ``Body`` checks and reads them."""

    def decorated(compute: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        body = Body(compute, like, shapes)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            return compute(**body.read(body.bound(positional, named)))  # type: ignore[call-arg]

        return function

    return decorated


def anywhere(like: str, **shapes: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function that is written for NumPy arrays and tensors take arrays of any library, on any device.

    ``Body`` checks and reads them. ``like`` names the argument whose library, device and shape the results have.
    Their dtype is the one to which the library promotes all ``Numbers``, or its default float dtype if none of them is
    a float.

    NumPy computes arrays and tensors on the CPU. torch computes tensors on a GPU, where they stay, and tensors in code
    that it compiles or transforms. A call that JAX traces becomes one callback, in which NumPy computes.
    """

    def decorated(compute: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        body = Body(compute, like, shapes)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            return _called(body, body.bound(positional, named))

        return function

    return decorated


def namespace_of(array: Any) -> Any:
    """Return NumPy or torch: the module whose functions take this array."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def _called(body: Body, given: dict[str, Any]) -> Any:
    first = given[body.like]
    if kind_of(first) == "torch":
        # Import statements here and below, because torch.compile follows them.
        from fastgae._interop.torch import computes

        if computes(first):
            return _in_torch(body, given, first)
    elif any_traced(given.values()):
        return _in_a_callback(body, given)
    result = _in_numpy(body, **given)
    convert = converter(first, body.numbers_in(given))
    return result if convert is None else _each(convert, result)


def _in_numpy(body: Body, /, **given: Any) -> Any:
    """Return the results for arguments on the CPU, as NumPy arrays."""
    taken = body.read(given)
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        return body.compute(**taken)


def _in_torch(body: Body, given: dict[str, Any], first: Any) -> Any:
    """Return the results for tensors on one device, as tensors there."""
    from fastgae._interop.torch import is_compiling, on_device, promoted
    from fastgae._interop.torch_devices import as_tensor, check_device, floats, held

    like, numbers = body.like, body.numbers
    check_device(like, first)
    if on_device(first) and not is_compiling():
        _dispatch.on_devices(like, held(like, first))
    taken = {name: as_tensor(name, each, like, first) for name, each in given.items()}
    if not is_compiling():
        taken |= body.read({name: each for name, each in taken.items() if kind_of(each) is None})
    taken.update({name: floats(name, taken[name]) for name in numbers if name in taken})
    dtype = promoted(body.numbers_in(given))
    return _each(lambda result: result.to(dtype), body.compute(**taken))


def _in_a_callback(body: Body, given: dict[str, Any]) -> Any:
    """Return the results in code that JAX traces, from a callback that makes every call of a batch."""
    from fastgae._interop.batches import Batch
    from fastgae._interop.jax import promoted
    from fastgae._interop.jax_calls import callback

    returns = body.signature.return_annotation
    fields = getattr(returns, "_fields", get_args(returns))
    compute = functools.partial(_in_numpy, body)
    dtype = promoted(body.numbers_in(given))
    results = callback(compute, given, body.like, dtype, len(fields) or 1, Batch.one_by_one)
    return getattr(returns, "_make", tuple)(results) if fields else results[0]


def _each(convert: Callable[[Any], Any], result: Any) -> Any:
    """Convert one result, or each of several."""
    return getattr(result, "_make", tuple)(map(convert, result)) if isinstance(result, tuple) else convert(result)
