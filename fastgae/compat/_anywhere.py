"""Read the arguments of a function of compat by its annotations, and run it where its arrays are.

That is in NumPy or in torch, and in code that torch or JAX compiles. An error names the argument that is wrong.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from operator import methodcaller
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import numpy as np

from fastgae._call import Array
from fastgae._canonical.arguments import as_integers, as_number, as_switch, integer_of, shown
from fastgae._canonical.frame import as_flags, as_unit_interval
from fastgae._engine import dispatch
from fastgae._interop.arrays import check_wide
from fastgae._interop.libraries import (
    any_traced,
    as_array,
    as_floats,
    as_numbers,
    as_numpy,
    converter,
    is_weak,
    kind_of,
    on_the_cpu,
)
from fastgae._support.misnamed import missing, no_argument
from fastgae._typing import ArrayT
from fastgae._typing import Numbers as NumbersElsewhere

STOPS = "stop_target_gradients"  # a function with this argument has gradients in JAX
Function = TypeVar("Function", bound=Callable[..., Any])
Reader = Callable[[str, Any], Any]
Axes = tuple[int | str, ...]


def _coefficients(name: str, given: object) -> Any:
    """Return a float, or an array of numbers in [0, 1], whose shape has been checked."""
    check_wide(name, given)
    return as_unit_interval(name, as_numpy(name, given))


def _discounts(name: str, given: object) -> Array:
    array = as_floats(name, given)
    _coefficients(name, array)
    return array


def _integer(name: str, given: object) -> int:
    number = integer_of(given)
    if number is None:
        raise TypeError(f"{name} must be an integer, got {shown(given)}")
    return number


def _number(name: str, given: object) -> float:
    array = as_numpy(name, given)
    return as_number(name, array.reshape(()) if getattr(array, "size", 0) == 1 else array, "a number")


def _clip(name: str, given: object) -> float:
    if not (clip := _number(name, given)) >= 0:
        raise ValueError(f"{name} must be a number >= 0, got {clip!r}")
    return clip


def _function(name: str, given: object) -> object:
    if not callable(given):
        raise TypeError(f"{name} must be a function, got {shown(given)}")
    return given


class Having(NamedTuple):
    """Annotate an object with the attributes that the function reads."""

    attributes: str
    way: str = ""  # what to do if they are missing

    def __call__(self, name: str, given: object) -> object:
        if not all(hasattr(given, attribute) for attribute in self.attributes.split()):
            raise TypeError(f"{name} must have the attributes {self.attributes}, got {shown(given)}{self.way}")
        return given


# The dtypes of the first three decide on the dtype of the results, and the library of the first is their library.
Like = Annotated[ArrayT | NumbersElsewhere, "rewards or values"]
Numbers = Annotated[Any, "rewards, values or ratios"]
Discounts = Annotated[Any, "numbers in [0, 1]"]
Copied = Annotated[Any, "numbers, copied if a GPU holds them"]
Number = Annotated[Any, "a number, or an array of one"]
Flags = Annotated[Any, "bool, or numbers that are 0 or 1"]
Integers = Annotated[Any, "integers"]
Clip = Annotated[float, "0 or more"]
Coefficient = Annotated[float, "in [0, 1]"]
Coefficients = Annotated[Any, "a number in [0, 1], or an array of them"]
# How to read an argument with this annotation for NumPy.
READERS: dict[Any, Reader] = {
    Like: as_floats,
    Numbers: as_floats,
    Discounts: _discounts,
    Copied: lambda name, given: as_floats(name, on_the_cpu(given, name)),
    Number: as_numbers,
    Flags: as_flags,
    Integers: as_integers,
    Clip: _clip,
    Coefficient: _coefficients,
    Coefficients: _coefficients,
    bool: as_switch,
    int: _integer,
    float: _number,
    Callable: _function,
}


class Body:
    """What a function computes from NumPy arrays or tensors, how each parameter is read, and which shapes it may have.

    ``like`` is the name of an array and its axes, such as "rewards: T N". Numbers, flags and integers have the same
    axes, unless ``shapes`` has others: "T+1 N", "N | 1 N" for one of two shapes, "| N" for one number or an array, and
    "~ T N" for an array that broadcasts to these axes. "..." stands for any further axes.
    """

    def __init__(self, compute: Callable[..., Any], like: str, shapes: dict[str, str]):
        self.compute = compute
        self.like, _, axes = like.partition(": ")
        self.signature = inspect.signature(compute)
        parameters = self.signature.parameters.values()
        self.positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        self.required = [each.name for each in parameters if each.default is each.empty]
        self.optional, self.numbers, self.flags = set(), [], []
        self.readers: dict[str, Reader] = {}
        self.shapes = {self.like: axes, **shapes} if like else shapes
        for each in parameters:
            kinds = get_args(each.annotation)
            kind = kinds[0] if NoneType in kinds else each.annotation
            if NoneType in kinds or each.default is None:
                self.optional.add(each.name)
            if kind in (Like, Numbers, Discounts):
                self.numbers.append(each.name)
            if kind is Flags:
                self.flags.append(each.name)
            if kind in (Like, Numbers, Discounts, Flags, Integers, Coefficient):
                self.shapes.setdefault(each.name, "" if kind is Coefficient else axes)
            readers: list[Any] = [part for part in kinds if isinstance(part, Having)]
            readers += [READERS[known] for known in (kind, get_origin(kind)) if known in READERS]
            self.readers[each.name] = readers[0] if readers else as_numpy
        self.words = {axes: [tuple(shape.split()) for shape in axes.split("|")] for axes in self.shapes.values()}

    def bound(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, or raise an error if one is missing or has another shape."""
        given = {**dict(zip(self.positional, positional, strict=False)), **named}
        if not given.keys() <= self.readers.keys():
            raise no_argument(self.compute, named)
        if absent := [name for name in self.required if name not in given]:
            raise missing(self.compute, absent)
        if len(given) < len(positional) + len(named):
            self.signature.bind(*positional, **named)  # raises Python's error
        sizes: dict[str, Any] = {"1": 1}
        fitting: dict[str, tuple[int, ...]] = {"": ()}
        for name, axes in self.shapes.items():
            each = given.get(name)
            if each is None and (name in self.optional or name not in given):
                continue
            shape = _shape(name, each)
            if fitting.get(axes) != shape:
                shapes = [_known(words, sizes) for words in self.words[axes]]
                if not any(_fits(shape, known, sizes) for known in shapes):
                    raise self._misfit(name, each, shapes, given)
                fitting[axes] = shape
        return given

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as NumPy arrays and numbers, or raise an error for one of a wrong type or value."""
        return {
            name: None if each is None and name in self.optional else self.readers[name](name, each)
            for name, each in given.items()
        }

    def numbers_in(self, given: dict[str, Any]) -> list[Any]:
        return [given[name] for name in self.numbers if name in given]

    def _misfit(self, name: str, each: Any, shapes: list[Axes], given: dict[str, Any]) -> Exception:
        words = [f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})" for axes in shapes if axes]
        words = [word.replace("(~, ", "that broadcasts to (") for word in words]
        expected = " or ".join(["one number"] * (() in shapes) + [f"shape {' or '.join(words)}"] * bool(words))
        if self.like in given and name != self.like:
            expected += f", because {self.like} has shape {_shape(self.like, given[self.like])}"
        if hasattr(each, "shape") or isinstance(each, list | tuple):
            return ValueError(f"{name} has shape {_shape(name, each)}; expected {expected}")
        return TypeError(f"{name} must have {expected}; got {shown(each)}")


def _shape(name: str, given: Any) -> tuple[int, ...]:
    if given is None or isinstance(given, int | float):
        return ()
    try:
        return tuple(given.shape)
    except (AttributeError, RuntimeError):  # a list has none, and that of a nested tensor is an error of torch
        return tuple(as_array(name, given).shape)


def _known(axes: tuple[str, ...], sizes: dict[str, Any]) -> Axes:
    """Return the axes with their sizes, and with their names where the size is not known."""
    known: list[Any] = []
    for axis in axes:
        if axis == "...":
            known += sizes.get(axis, (axis,))
        elif axis[1:] in ("+1", "-1"):
            known.append(max(sizes[axis[0]] + int(axis[1:]), 0))
        else:
            known.append(sizes.get(axis, axis))
    return tuple(known)


def _fits(shape: tuple[int, ...], axes: Axes, sizes: dict[str, Any]) -> bool:
    """Return whether a shape has these axes, and note the sizes that were not known."""
    if axes == shape:
        return True
    if axes[:1] == ("~",):  # broadcasts to the others
        return len(shape) < len(axes) and all(n in (1, axis) for n, axis in zip(shape[::-1], axes[::-1], strict=False))
    front = axes[:-1] if axes[-1:] == ("...",) else axes
    pairs = list(zip(front, shape, strict=False))
    if len(pairs) < len(front) or (front is axes and len(shape) > len(front)):
        return False
    if any(axis != n for axis, n in pairs if isinstance(axis, int)):
        return False
    sizes.update((axis, n) for axis, n in pairs if isinstance(axis, str))
    if front is not axes:
        sizes["..."] = shape[len(front) :]
    return True


def in_numpy(like: str = "", **shapes: str) -> Callable[[Function], Function]:
    """Let a function that is written for NumPy arrays take any arrays on the CPU. ``Body`` checks and reads them."""
    return _decorator(lambda body, given: body.compute(**body.read(given)), like, shapes)


def anywhere(like: str, **shapes: str) -> Callable[[Function], Function]:
    """Let a function that is written for NumPy arrays and tensors take arrays of any library, on any device.

    ``Body`` checks and reads them. ``like`` names the argument whose library, device and shape the results have.
    Their dtype is the one to which the library promotes all ``Numbers``, or its default float dtype if none of them is
    a float.

    NumPy computes arrays and tensors on the CPU. torch computes tensors on a GPU, where they stay, and tensors in code
    that it compiles or transforms. JAX computes arrays that it traces, and arrays on other devices.
    """
    return _decorator(_called, like, shapes)


def _decorator(call: Callable[..., Any], like: str, shapes: dict[str, str]) -> Callable[[Function], Function]:
    def decorated(compute: Function) -> Function:
        body = Body(compute, like, shapes)

        @functools.wraps(compute)
        def function(*positional: Any, **named: Any) -> Any:
            return call(body, body.bound(positional, named))

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


def last_of(rows: Any) -> Any:
    """Return the last row, or 0 if there are no rows."""
    return rows[-1] if len(rows) else 0.0


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
    convert = converter(first, body.numbers_in(given))
    if convert is None:
        strong = [taken[name] for name in body.numbers if name in taken and not is_weak(given[name])]
        convert = methodcaller("astype", np.result_type(taken[body.like], *strong), copy=False)
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        return _each(convert, body.compute(**taken))


def _in_torch(body: Body, given: dict[str, Any], first: Any) -> Any:
    """Return the results for tensors on one device, as tensors there."""
    from fastgae._interop.torch import is_compiling, on_device, promoted
    from fastgae._interop.torch_devices import as_tensor, check_device, floats, held, one_number

    like, numbers = body.like, body.numbers
    check_device(like, first)
    if on_device(first) and not is_compiling():
        dispatch.on_devices(like, held(like, first))
    taken = {name: constant(as_tensor(name, each, like, first)) for name, each in given.items()}
    if STOPS in body.readers:
        taken[STOPS] = True
    if not is_compiling():
        taken |= body.read({name: each for name, each in taken.items() if kind_of(each) is None})
    taken.update({name: one_number(taken[name], first) for name in (*numbers, *body.flags) if name in taken})
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
