"""Decorators of the public functions: they refuse unknown names, and take arrays of every library.

The body of an estimator makes a tuple of its arguments, in the order of ``Call``, and hands it to ``run.run``.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from numpy import ndarray

from fastgae._call import MISSING, NUMBERS, Call, Declaration
from fastgae._interop.calls import with_tensors
from fastgae._interop.libraries import is_tensor, takes_tensors
from fastgae._support.misnamed import missing, no_argument, shows_its_source, too_many

Function = TypeVar("Function", bound=Callable[..., Any])


def public(function: Function) -> Function:
    """Return a function of arrays that refuses unknown names, and computes arrays of other libraries."""
    parameters = inspect.signature(shows_its_source(function)).parameters
    first = next(iter(parameters))
    required = [name for name, each in parameters.items() if each.default is each.empty]
    most = sum(each.kind is not each.KEYWORD_ONLY for each in parameters.values())

    @functools.wraps(function)
    def called(*positional: Any, **named: Any) -> Any:
        if len(positional) > most:
            raise too_many(called, len(positional))
        if not named.keys() <= parameters.keys():
            raise no_argument(called, named)
        if absent := [name for name in required[len(positional) :] if name not in named]:
            raise missing(called, absent)
        given = positional[0] if positional else named.get(first)
        if type(given) is ndarray or not is_tensor(given):
            return function(*positional, **named)
        arguments = {name: parameter.default for name, parameter in parameters.items()}
        arguments.update(zip(parameters, positional, strict=False))
        return with_tensors(called, arguments | named)

    called.__annotations__ = function.__annotations__  # from Python 3.14 on, wraps copies only what makes them
    return called  # type: ignore[return-value]


def estimator(
    *, result: str | None = None, words: Mapping[str, str] | None = None, in_torch: bool = True
) -> Callable[[Function], Function]:
    """Return the decorator of an estimator, which makes ``declaration`` an attribute of the function.

    ``result`` is the field of GAEResult that the function returns; None: both. ``words`` are its names for some fields
    of ``Call``. ``in_torch``: each of its arguments has one type in torch, so that compiled programs of torch, and not
    only those of JAX, can hold its calls. An argument without a default gets the default MISSING, so that the error can
    say more than Python's.
    """
    words = dict(words or {})
    known = {words.get(field, field): place for place, field in enumerate(Call._fields)}

    def decorated(function: Function) -> Function:
        parameters = inspect.signature(shows_its_source(function)).parameters
        fields = {name: known[name] for name in parameters if name in known}
        needed = {name: fields[name] for name, each in parameters.items() if each.default is each.empty}
        required = (name for name in needed if "None" not in parameters[name].annotation)
        made: Any = function
        made.declaration = Declaration(
            fields=fields,
            needed=needed,
            numbers=tuple(field for field in Call._fields if words.get(field, field) in NUMBERS),
            required=tuple(Call._fields[fields[name]] for name in required),
            words=words,
            result=result,
        )
        defaults = {name: MISSING if each.default is each.empty else each.default for name, each in parameters.items()}
        by_name = [name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY]
        made.__defaults__ = tuple(default for name, default in defaults.items() if name not in by_name)
        made.__kwdefaults__ = {name: defaults[name] for name in by_name}
        return takes_tensors(in_torch=in_torch)(function)

    return decorated
