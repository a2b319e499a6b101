"""Every bad value of every argument of every function, on every backend: an error that names it, and nothing else."""

import re
import warnings

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS
from support.bad_arguments import CONFLICTS, VALUES, kind_of
from support.functions import FUNCTIONS, parameters, required
from support.good_calls import good_calls


def bytes_of(given):
    """The memory of all arrays among some arguments."""
    if type(given) is np.ndarray:
        return [given.tobytes()]
    if isinstance(given, dict):
        given = given.values()
    return [each for array in given for each in bytes_of(array)] if isinstance(given, tuple | type({}.values())) else []


def nothing_is_left_behind():
    """An exception that a compiled module forgot comes out at the next statement."""
    assert int("1") == 1
    assert list(each for each in (1, 2)) == [1, 2]  # noqa: C400


def failure_of(function, arguments, name, error):
    """What is wrong with how the call ends; nothing where it ends as it should."""
    before = bytes_of(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(fastgae, function)(**arguments)
    except Exception as raised:
        nothing_is_left_behind()
        if error is None:
            return f"raised {raised!r}"
        if type(raised) is not error:
            return f"raised {raised!r}; expected {error.__name__}"
        if not re.search(rf"\b{name}\b", str(raised)):
            return f"does not name it: {raised}"
        return "wrote to an array" if bytes_of(arguments) != before else None
    nothing_is_left_behind()
    return None if error is None else f"accepted; expected {error.__name__}"


def good_call(arguments):
    """The same arguments with outputs of their own, which still hold 7."""
    out = arguments.get("out")
    if out is None:
        return dict(arguments)
    fresh = tuple(np.full_like(array, 7) for array in out) if isinstance(out, tuple) else np.full_like(out, 7)
    return {**arguments, "out": fresh}


def cases():
    for function, kind, arguments in good_calls():
        for backend in BACKENDS if "backend" in parameters(function) else [None]:
            how = {"backend": backend} if backend else {}
            yield pytest.param(function, arguments, how, id="-".join([*how.values(), function, kind.replace(" ", "_")]))


OPTIONAL_ARRAYS = ("numbers", "numbers of envs", "moment", "flags")


def bad_values(function, arguments):
    """(argument, its value in words, good value -> bad one, the error or None where it is fine)."""
    for name, parameter in parameters(function).items():
        kind = kind_of(function, name)
        absent = name not in arguments and parameter.default is None and kind in OPTIONAL_ARRAYS
        if absent or any(name in CONFLICTS.get(given, ()) for given in arguments):  # another call has it
            continue
        for value, (change, error) in VALUES[kind].items():
            yield name, value, change, error


@pytest.mark.parametrize(("function", "arguments", "how"), list(cases()))
def test_bad_arguments(function, arguments, how):
    inputs = bytes_of({name: given for name, given in arguments.items() if name != "out"})
    failures = []
    for name, value, change, error in bad_values(function, arguments):
        call = {**good_call(arguments), **how}
        call[name] = change(call.get(name))
        failure = failure_of(function, call, name, error)
        if failure:
            failures.append(f"{name}: {value}: {failure}")
    assert not failures, "\n".join([f"{len(failures)} in {function}({', '.join(arguments)}):", *failures])
    assert bytes_of({name: given for name, given in arguments.items() if name != "out"}) == inputs


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_of_every_function_is_attacked(function):
    """Only a setting can be missing in the table: it is of a kind of its own."""
    calls = [arguments for name, _, arguments in good_calls() if name == function]
    attacked = {name for arguments in calls for name, *_ in bad_values(function, arguments)}
    assert attacked == {*parameters(function)}
    assert all(any(name in call for call in calls) for name, each in parameters(function).items() if required(each))


if __name__ == "__main__":
    calls = [case.values[:2] for case in cases()]
    print(sum(len(list(bad_values(*call))) for call in calls), "values in", len(calls), "calls")
