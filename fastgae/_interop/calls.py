"""Pass a call with arrays of another library to the function that makes such calls."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastgae._call import NEW, Call, Declaration, Role, names_of
from fastgae._interop.arrays import NO_ARRAYS, check_wide, taken
from fastgae._interop.libraries import LIBRARIES, kind_of, type_of

Result = TypeVar("Result")

COEFFICIENTS = names_of(Role.COEFFICIENT)
OUT = Call._fields.index("out")


def in_numpy(given: tuple[Any, ...], declaration: Declaration) -> tuple[Any, tuple[Any, ...]]:
    """Return a call of an estimator with NumPy arrays for those of another library, and the module of that library.

    The module is None if the library must see the call itself, or the call has arrays to fill.
    """
    out, kind = given[OUT], kind_of(given[0])
    fills = out is not None and not (type(out) is tuple and all(each is None or each is NEW for each in out))
    if kind is None or fills:
        return None, given
    library, array_type = LIBRARIES[kind].conversions(), type_of(kind)
    if not library.may_be_read(given):
        return None, given
    read = list(given)
    for place, each in enumerate(given):
        if type(each) not in NO_ARRAYS and isinstance(each, array_type):
            read[place] = library.to_numpy(declaration.word(Call._fields[place]), each)
    return library, tuple(read)


def with_tensors(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Call a function with arrays of other libraries and return its results in the library of its first argument."""
    kind = kind_of(next(iter(arguments.values())))
    assert kind is not None
    for name in COEFFICIENTS:
        if (given := arguments.get(name)) is not None and type(given) not in (float, int):
            check_wide(name, given)  # here, because what follows would widen it
    if not arguments.get("stop_gradients", True) and arguments.get("out") is not None:
        raise ValueError("out cannot carry gradients: leave it out, or leave stop_gradients True")
    result: Result = (
        CALLS[kind](arguments)(function, arguments) if kind in CALLS else _computed(kind, function, arguments)
    )
    return result


def check_no_tensors(arguments: dict[str, Any]) -> None:
    """Raise an error if a call that keeps gradients would lose them, because its first argument is NumPy's."""
    first, *others = arguments
    for name in others:
        if kind := kind_of(arguments[name]):
            raise TypeError(
                f"{name} is an array of {kind}, and {first} is not, so the results would have no gradients: convert "
                f"{first}, or leave stop_gradients True"
            )


def _computed(kind: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with arrays of a library that needs no way of its own."""
    if arguments.get("out") is not None:
        raise TypeError(f"out cannot be filled with results from arrays of {kind}: leave it out")
    conversions = LIBRARIES[kind].conversions()
    arrays = taken(arguments, type_of(kind), conversions.to_numpy)
    return conversions.from_numpy(function(**arrays), next(iter(arguments.values())))


# A library that traces or compiles code gets an operation of its own there, which makes the call when it runs.
# Import statements, because torch.compile follows them, but not importlib.
def _torch(arguments: dict[str, Any]) -> Callable[..., Any]:
    from fastgae._interop.torch import transforms

    if not arguments.get("stop_gradients", True):
        from fastgae._interop.torch_ops import differentiated

        kept: Callable[..., Any] = differentiated
        return kept
    if transforms():
        # Not above, because the import registers the operations, which takes longer than a call.
        from fastgae._interop.torch_ops import traced

        return traced
    from fastgae._interop.torch_devices import computed

    return computed


def _jax(arguments: dict[str, Any]) -> Callable[..., Any]:
    from fastgae._interop.jax_calls import computed

    if arguments.get("out") is not None:
        raise TypeError("out cannot be filled, because JAX arrays never change: leave it out")
    return computed


# Name of a library -> a function of the arguments of a call that returns the function that makes it.
CALLS: dict[str, Callable[[dict[str, Any]], Callable[..., Any]]] = {"torch": _torch, "jax": _jax}
