"""Run a function of compat where its arrays are: in NumPy or in torch, and in code that torch or JAX compiles."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_args

import numpy as np

from fastgae import _dispatch
from fastgae._interop import any_traced, as_floats, as_numpy, converter, kind_of

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# These arguments are read as floats, and their dtypes decide on the dtype of the results.
Numbers = Annotated[Any, "rewards, values or ratios"]


class _Body(NamedTuple):
    """A function for NumPy arrays or tensors, with a description of its arguments and results."""

    compute: Callable[..., Any]
    like: str
    numbers: tuple[str, ...]
    returns: Any

    def numbers_in(self, given: dict[str, Any]) -> list[Any]:
        return [given[name] for name in self.numbers if name in given]


def anywhere(like: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function that is written for NumPy arrays and tensors take arrays of any library, on any device.

    ``like`` names the argument whose library, device and shape the results have. Their dtype is the one to which
    the library promotes all ``Numbers``, or its default float dtype if none of them is a float.

    NumPy computes arrays and tensors on the CPU. torch computes tensors on a GPU, where they stay, and tensors in code
    that it compiles or transforms. A call that JAX traces becomes one callback, in which NumPy computes.
    """

    def decorated(compute: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(compute)
        parameters = signature.parameters.values()
        numbers = tuple(each.name for each in parameters if each.annotation is Numbers)
        body = _Body(compute, like, numbers, signature.return_annotation)
        names = tuple(each.name for each in parameters if each.kind is not each.KEYWORD_ONLY)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            given = {**dict(zip(names, positional, strict=False)), **named}
            if len(given) < len(positional) + len(named):
                signature.bind(*positional, **named)  # raises Python's error for too many arguments
            return _called(body, given)

        return function

    return decorated


def namespace_of(array: Any) -> Any:
    """Return NumPy or torch: the module whose functions take this array."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def _called(body: _Body, given: dict[str, Any]) -> Any:
    first = given.get(body.like)
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


def _in_numpy(body: _Body, /, **given: Any) -> Any:
    """Return the results for arguments on the CPU, as NumPy arrays."""
    taken = {name: (as_floats if name in body.numbers else as_numpy)(name, each) for name, each in given.items()}
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        return body.compute(**taken)


def _in_torch(body: _Body, given: dict[str, Any], first: Any) -> Any:
    """Return the results for tensors on one device, as tensors there."""
    from fastgae._interop.torch import is_compiling, on_device, promoted
    from fastgae._interop.torch_devices import as_tensor, check_device, floats, held

    check_device(body.like, first)
    if on_device(first) and not is_compiling():
        _dispatch.on_devices(body.like, held(body.like, first))
    taken = {name: as_tensor(name, each, body.like, first) for name, each in given.items()}
    taken.update({name: floats(name, taken[name]) for name in body.numbers if name in taken})
    dtype = promoted(body.numbers_in(given))
    return _each(lambda result: result.to(dtype), body.compute(**taken))


def _in_a_callback(body: _Body, given: dict[str, Any]) -> Any:
    """Return the results in code that JAX traces, from a callback that makes every call of a batch."""
    from fastgae._interop.batches import Batch
    from fastgae._interop.jax import callback, promoted

    fields = getattr(body.returns, "_fields", get_args(body.returns))
    compute = functools.partial(_in_numpy, body)
    dtype = promoted(body.numbers_in(given))
    results = callback(compute, given, body.like, dtype, len(fields) or 1, Batch.one_by_one)
    return getattr(body.returns, "_make", tuple)(results) if fields else results[0]


def _each(convert: Callable[[Any], Any], result: Any) -> Any:
    """Convert one result, or each of several."""
    return getattr(result, "_make", tuple)(map(convert, result)) if isinstance(result, tuple) else convert(result)
