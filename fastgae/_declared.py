"""Turn declared functions into public ones: they refuse unknown names, and take arrays of every library.

An estimator is declared by its signature and its docstring. Each argument goes into the field of ``Call`` that has its
name, and ``_run`` computes the call. So there is nothing that a new estimator could forget.
"""

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from numpy import ndarray

from fastgae._call import ABSENT, NEW, RECURSIONS, ROLES, Call, Estimator, Role, names_of
from fastgae._canonical import as_switch
from fastgae._interop import FUNCTIONS, OnDevice, as_array, check_no_tensors, is_tensor, with_tensors
from fastgae._misnamed import no_argument, shows_its_source, too_many
from fastgae._run import run, run_on_device

Function = TypeVar("Function", bound=Callable[..., Any])
Reader = Callable[[str, Any], Any]

NUMBERS = tuple(field for field in names_of(Role.STEPS, Role.ENVS) if field in Call._fields)
MISSING = object()  # stands for an argument that must be given


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


def _check_stop_gradients(arguments: dict[str, Any]) -> None:
    """Check a switch that is not True. Where the first argument is NumPy's, no other may have gradients to lose."""
    if not as_switch("stop_gradients", arguments["stop_gradients"]) and not is_tensor(next(iter(arguments.values()))):
        check_no_tensors(arguments)


def estimator(
    *,
    result: str | None = None,
    words: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    reads: Mapping[str, Reader] | None = None,
) -> Callable[[Function], Function]:
    """Return the decorator of a function whose body is only its docstring.

    ``result`` is the field of GAEResult that the function returns; None: both. ``words`` are its names for some fields
    of ``Call``, ``fixed`` are fields that it has no arguments for, and ``reads`` are functions of a name and an
    argument that convert or refuse the argument in every call.
    """

    def decorated(function: Function) -> Function:
        declaration = declared(shows_its_source(function), words, result)
        called: Any = functools.wraps(function)(_written_out(function, declaration, fixed or {}, reads or {}))
        FUNCTIONS[function.__name__] = called
        return called  # type: ignore[no-any-return]

    return decorated


# What an estimator does. A function of any arguments, which sorts them in every call, takes longer than a small call.
TEXT = """
def bind({bound}):
    def {name}({parameters}, **misnamed):
        compute = run
        if {unusual}:
            results = not_plain({name}, required, unnamed, misnamed, {{{arguments}}})
            if results is not None:
                return results
            if type({first}) is OnDevice:
                compute = run_on_device
        return compute(declaration, ({fields},), {how}){field}

    return {name}
"""


def _written_out(
    function: Callable[..., Any], declaration: Estimator, fixed: Mapping[str, Any], reads: Mapping[str, Reader]
) -> Callable[..., Any]:
    """Return the function of a declaration. A traceback shows its frame as the declaration itself."""
    parameters = inspect.signature(function).parameters
    renamed = {word: field for field, word in declaration.words.items()}
    arguments = {renamed.get(name, name): name for name in parameters}  # field -> what the function calls it
    bound = {
        "ndarray": ndarray,
        "run": run,
        "OnDevice": OnDevice,
        "run_on_device": run_on_device,
        "not_plain": _not_plain,
        "declaration": declaration,
        "required": tuple(map(arguments.get, declaration.required)),
        "MISSING": MISSING,
        "NEW": NEW,
        **{f"fixed_{field}": setting for field, setting in fixed.items()},
        **{f"read_{name}": read for name, read in reads.items()},
    }

    def text_of(field: str) -> str:
        if field not in arguments:
            return f"fixed_{field}" if field in fixed else repr(Call._field_defaults[field])
        name = arguments[field]
        if name == "out" and declaration.result:
            pair = ("NEW if out is None else out", "None")
            return "({}, {})".format(*(pair if declaration.result == "advantages" else reversed(pair)))
        return f"read_{name}({name!r}, {name})" if name in reads else name

    first, *others = declaration.required
    unusual = ["misnamed", "unnamed", f"type({arguments[first]}) is not ndarray"]
    unusual += ["stop_gradients is not True"] * ("stop_gradients" in parameters)
    for field in others:
        unusual.append(f"{arguments[field]} is MISSING")
        # None stands for an argument that another estimator does not have: a short cut would see a call of that one.
        if Call._field_defaults.get(field, ABSENT) is None:
            unusual.append(f"{arguments[field]} is None")
    positional = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
    last = max(map(Call._fields.index, (*arguments.keys() & {*Call._fields}, *fixed)))
    text = TEXT.format(
        bound=", ".join(bound),
        name=function.__name__,
        parameters=", ".join([*positional, "*unnamed", *(name for name in parameters if name not in positional)]),
        first=arguments[first],
        unusual=" or ".join(unusual),
        arguments=", ".join(f"{name!r}: {name}" for name in parameters),
        fields=", ".join(map(text_of, Call._fields[: last + 1])),
        how=", ".join(name if name in parameters else "None" for name in ("backend", "num_threads")),
        field="" if declaration.result is None else f".{declaration.result}",
    )
    tree, line = ast.parse(text), function.__code__.co_firstlineno
    for node in ast.walk(tree):
        # All columns of a line, so that a traceback marks no part of it.
        ast.copy_location(node, ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=120))
    made: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, made)
    called: Any = made["bind"](**bound)
    defaults = {name: MISSING if each.default is each.empty else each.default for name, each in parameters.items()}
    called.__defaults__ = tuple(defaults.pop(name) for name in positional)
    called.__kwdefaults__ = defaults
    return called  # type: ignore[no-any-return]


def _not_plain(
    function: Any,
    required: tuple[str, ...],
    unnamed: tuple[Any, ...],
    misnamed: dict[str, Any],
    arguments: dict[str, Any],
) -> Any:
    """Raise the error of a wrong call, or return the results of arrays of another library. None: it is like others."""
    if misnamed:
        raise no_argument(function, misnamed)
    if unnamed:
        raise too_many(function, len(function.__defaults__) + len(unnamed))
    for name in required:
        if arguments[name] is MISSING:
            given = {each: argument for each, argument in arguments.items() if argument is not MISSING}
            function.__wrapped__(**given)  # raises Python's own error
        if arguments[name] is None and ROLES[name] is not Role.SETTING:
            as_array(name, None)  # raises the error
    if arguments.get("stop_gradients", True) is not True:
        _check_stop_gradients(arguments)
    first = next(iter(arguments.values()))
    return with_tensors(function, arguments) if type(first) is not ndarray and is_tensor(first) else None


Reduction = TypeVar("Reduction", bound=Callable[[Call], Call | None])


def recursion(name: str) -> Callable[[Reduction], Reduction]:
    """Return the decorator of a function for ``RECURSIONS``."""

    def registered(function: Reduction) -> Reduction:
        RECURSIONS[name] = function
        return function

    return registered
