"""The record of a call: every public function and the compiled module agree with it."""

import inspect

import pytest

import fastgae
from fastgae._call import ROLES, Call, GAEResult, Role
from support.functions import FUNCTIONS, parameters, required
from support.good_calls import good_calls

OF_GAE = dict(parameters("gae"))
ESTIMATORS = [getattr(fastgae, name) for name in FUNCTIONS if hasattr(getattr(fastgae, name), "declaration")]


def test_every_public_function_with_parameters_takes_arrays():
    """Other tests, the fuzzer among them, call what ``FUNCTIONS`` lists."""
    public = {name for name in fastgae.__all__ if inspect.isfunction(getattr(fastgae, name))}
    assert set(FUNCTIONS) == {name for name in public if parameters(name)}
    assert set(FUNCTIONS) >= {"gae", "vtrace", "reverse_scan", "diagnose"}


def test_every_parameter_has_a_role_and_every_role_a_parameter():
    every = [(function, *each) for function in FUNCTIONS for each in parameters(function).items()]
    assert set(ROLES) - {"recursion", "deviation"} == {name for _, name, _ in every}
    for function, name, parameter in every:
        written = inspect.signature(getattr(fastgae, function)).parameters  # with annotations as the source has them
        assert name in ROLES, f"{name} of {function} has no role in fastgae/_call.py"
        takes_arrays = any(word in written[name].annotation for word in ("ArrayLike", "Numbers", "Flags"))
        expected = ROLES[name] not in (Role.SETTING, Role.CONSTANT)
        assert takes_arrays == expected, f"{name}: {written[name].annotation}, {ROLES[name]}"
        if ROLES[name] is Role.CONSTANT:
            assert parameter.annotation in (float, float | None), name


def test_gae_has_the_names_and_the_defaults_of_the_record():
    *names, stop_gradients, num_threads, backend = OF_GAE
    assert (stop_gradients, num_threads, backend) == ("stop_gradients", "num_threads", "backend")
    assert {*names} <= {*Call._fields}
    given = {name: OF_GAE[name].default for name in names if not required(OF_GAE[name])}
    assert given == {name: Call._field_defaults[name] for name in given}


@pytest.mark.parametrize("function", ESTIMATORS)
def test_an_estimator_hands_on_every_argument(function, monkeypatch):
    """And the rest of the call has the defaults of the record, or what the estimator sets."""
    seen = []
    monkeypatch.setitem(function.__globals__, "run", lambda *given: seen.append(given) or GAEResult("A", "R"))
    given = {name: object() for name in parameters(function.__name__)}
    result = function(**given, unknown=3)
    ((called, call, backend, num_threads, stop_gradients, unnamed, misnamed),) = seen
    declaration = called.declaration
    assert called is function
    assert (unnamed, misnamed) == ((), {"unknown": 3})
    assert (backend, num_threads) == (given.get("backend"), given.get("num_threads"))
    assert stop_gradients is given.get("stop_gradients", True)
    assert result == ("A", "R") if declaration.result is None else result == declaration.result[0].upper()
    call = Call(*call)
    if declaration.result:
        assert getattr(GAEResult(*call.out), declaration.result) is given.pop("out")
    hows = {"stop_gradients", "num_threads", "backend"}
    assert {*given} - hows == {*declaration.fields} - ({"out"} if declaration.result else set())
    for name in {*given} - hows:
        assert call[declaration.fields[name]] is given[name], name
    others = {field for place, field in enumerate(Call._fields) if place not in declaration.fields.values()}
    changed = {field for field in others if getattr(call, field) is not Call._field_defaults.get(field)}
    assert changed <= {"values", "terminated", "gamma", "gae_lambda", "out", "recursion"}


@pytest.mark.parametrize("function", ESTIMATORS)
def test_a_missing_argument_is_named(function, backend):
    good = next(arguments for name, _, arguments in good_calls() if name == function.__name__)
    how = {"backend": backend} if "backend" in parameters(function.__name__) else {}
    for name, parameter in parameters(function.__name__).items():
        if required(parameter):
            without = {**{each: given for each, given in good.items() if each != name}, **how}
            with pytest.raises(TypeError, match=rf"{function.__name__}\(\) is missing the argument '{name}'"):
                function(**without)
