"""Turn declared functions into public ones: they refuse unknown names, and take arrays of every library.

An estimator is declared by its signature and its docstring. Each argument goes into the field of ``Call`` that has its
name, and ``_run`` computes the call. So there is nothing that a new estimator could forget.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from numpy import ndarray

from fastgae._call import NEW, RECURSIONS, ROLES, Call, Estimator, Role, names_of
from fastgae._canonical import as_switch, checked
from fastgae._interop import FUNCTIONS, check_no_tensors, is_tensor, with_tensors
from fastgae._misnamed import no_argument, shows_its_source, too_many
from fastgae._run import run

Function = TypeVar("Function", bound=Callable[..., Any])

PLACES = {field: place for place, field in enumerate((*Call._fields, "backend", "num_threads", "stop_gradients"))}
NUMBERS = tuple(field for field in names_of(Role.STEPS, Role.ENVS) if field in PLACES)
OUT, STOP_GRADIENTS = PLACES["out"], PLACES["stop_gradients"]
MISSING = object()  # stands for an argument that must be given

# Name of an estimator -> the place and name of an argument, and the function that converts or refuses it.
READERS: dict[str, list[tuple[int, str, "Reader"]]] = {}


def public(function: Function) -> Function:
    """Return a function of arrays that refuses unknown names, and computes arrays of other libraries."""
    parameters = inspect.signature(shows_its_source(function)).parameters
    first = next(iter(parameters))
    most = sum(each.kind is not each.KEYWORD_ONLY for each in parameters.values())

    @functools.wraps(function)
    def called(*positional: Any, **named: Any) -> Any:
        if len(positional) > most:
            raise too_many(called, len(positional))
        if not named.keys() <= parameters.keys():
            raise no_argument(called, named)
        given = positional[0] if positional else named.get(first)
        if type(given) is ndarray or not is_tensor(given):
            return function(*positional, **named)
        arguments = {name: parameter.default for name, parameter in parameters.items()}
        arguments.update(zip(parameters, positional, strict=False))
        return with_tensors(called, arguments | named)

    return called  # type: ignore[return-value]


def declared(
    function: Callable[..., Any], words: Mapping[str, str] | None = None, result: str | None = None
) -> Estimator:
    """Return what the checks must know of a function. ``words``: what it calls some fields of ``Call``."""
    words = dict(words or {})
    parameters = inspect.signature(function).parameters.values()
    fields = {words.get(field, field): field for field in Call._fields}
    return Estimator(
        numbers=(*NUMBERS, "gae_lambda") if ROLES.get(words.get("gae_lambda", "")) is Role.FACTORS else NUMBERS,
        required=tuple(fields[each.name] for each in parameters if each.default is each.empty),
        words=words,
        result=result,
    )


def check_stop_gradients(arguments: dict[str, Any]) -> None:
    """Check a switch that is not True. Where the first argument is NumPy's, no other may have gradients to lose."""
    if not as_switch("stop_gradients", arguments["stop_gradients"]) and not is_tensor(next(iter(arguments.values()))):
        check_no_tensors(arguments)


def estimator(
    *,
    result: str | None = None,
    words: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Callable[[Function], Function]:
    """Return the decorator of a function whose body is only its docstring.

    ``result`` is the field of GAEResult that the function returns; None: both. ``words`` are its names for some fields
    of ``Call``, and ``fixed`` are fields that it has no arguments for.
    """

    def decorated(function: Function) -> Function:
        name, parameters = function.__name__, inspect.signature(shows_its_source(function)).parameters.values()
        declaration = declared(function, words, result)
        fields = {word: field for field, word in declaration.words.items()}
        places = [PLACES[fields.get(each.name, each.name)] for each in parameters]
        numbers = {each.name: number for number, each in enumerate(parameters)}
        most = sum(each.kind is not each.KEYWORD_ONLY for each in parameters)
        blank: list[Any] = [*(Call._field_defaults.get(field) for field in Call._fields), None, None, True]
        for field, setting in (fixed or {}).items():
            blank[PLACES[field]] = setting
        for place, parameter in zip(places, parameters, strict=True):
            blank[place] = MISSING if parameter.default is parameter.empty else parameter.default
        required = [place for place in places if blank[place] is MISSING]
        readers = READERS.setdefault(name, [])

        @functools.wraps(function)
        def called(*positional: Any, **named: Any) -> Any:
            given, count = blank.copy(), len(positional)
            regular = count <= most
            for place, argument in zip(places, positional, strict=False):
                given[place] = argument
            for word, argument in named.items():
                number = numbers.get(word)
                if number is None:
                    raise no_argument(called, named)
                regular &= number >= count
                given[places[number]] = argument
            complete = True
            for place in required:
                regular &= given[place] is not MISSING
                complete &= given[place] is not None
            if not regular:
                if count > most:
                    raise too_many(called, count)
                function(*positional, **named)  # raises Python's own error
            if given[STOP_GRADIENTS] is not True:
                check_stop_gradients({word: given[places[number]] for word, number in numbers.items()})
            if type(given[0]) is not ndarray and is_tensor(given[0]):
                return with_tensors(called, {word: given[places[number]] for word, number in numbers.items()})
            _, num_threads, backend = given.pop(), given.pop(), given.pop()
            if result is not None:
                out = NEW if given[OUT] is None else given[OUT]
                given[OUT] = (out, None) if result == "advantages" else (None, out)
            for place, word, read in readers:
                given[place] = read(word, given[place])
            call = tuple(given)
            if not complete:
                checked(declaration, Call._make(call))  # raises an error, also where a short cut would see another call
            results = run(declaration, call, backend, num_threads)
            return results if result is None else getattr(results, result)

        FUNCTIONS[name] = called
        return called  # type: ignore[return-value]

    return decorated


Reader = Callable[[str, Any], Any]
ReaderT = TypeVar("ReaderT", bound=Reader)
Reduction = TypeVar("Reduction", bound=Callable[[Call], Call | None])


def reads(estimator: str, *arguments: str) -> Callable[[ReaderT], ReaderT]:
    """Return the decorator of the function that converts or refuses some arguments of an estimator, in every call."""

    def registered(function: ReaderT) -> ReaderT:
        READERS.setdefault(estimator, []).extend((PLACES[each], each, function) for each in arguments)
        return function

    return registered


def recursion(name: str) -> Callable[[Reduction], Reduction]:
    """Return the decorator of a function for ``RECURSIONS``."""

    def registered(function: Reduction) -> Reduction:
        RECURSIONS[name] = function
        return function

    return registered
