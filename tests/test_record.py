"""The record of a call: every public function and the compiled module agree with it."""

import inspect

import pytest

import fastgae
from fastgae import _declared
from fastgae._call import ROLES, Call, Role
from support.functions import FUNCTIONS, parameters

OF_GAE = dict(parameters("gae"))


def test_every_public_function_with_parameters_takes_arrays():
    """Other tests, the fuzzer among them, call what ``FUNCTIONS`` lists."""
    public = {name for name in fastgae.__all__ if inspect.isfunction(getattr(fastgae, name))}
    assert set(FUNCTIONS) == {name for name in public if parameters(name)}
    assert set(FUNCTIONS) >= {"gae", "vtrace", "reverse_scan", "diagnose"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_parameter_has_a_role(function):
    written = inspect.signature(getattr(fastgae, function)).parameters  # with annotations as the source has them
    for name, parameter in parameters(function).items():
        assert name in ROLES, f"{name} of {function} has no role in fastgae/_call.py"
        takes_arrays = any(word in written[name].annotation for word in ("ArrayLike", "Numbers", "Flags"))
        expected = ROLES[name] not in (Role.SETTING, Role.CONSTANT)
        assert takes_arrays == expected, f"{name}: {written[name].annotation}, {ROLES[name]}"
        if ROLES[name] is Role.CONSTANT:
            assert parameter.annotation in (float, float | None), name


def test_every_role_is_of_a_parameter():
    assert set(ROLES) - {"recursion"} == {name for function in FUNCTIONS for name in parameters(function)}


def test_gae_has_the_names_the_order_and_the_defaults_of_the_record():
    *names, stop_gradients, num_threads, backend = OF_GAE
    assert (stop_gradients, num_threads, backend) == ("stop_gradients", "num_threads", "backend")
    assert tuple(names) == Call._fields[: len(names)]
    given = {name: OF_GAE[name].default for name in names if OF_GAE[name].default is not inspect.Parameter.empty}
    assert given == {name: Call._field_defaults[name] for name in names if name in Call._field_defaults}


def test_gae_puts_every_argument_in_its_place(monkeypatch):
    seen = []
    monkeypatch.setattr(_declared, "run", lambda estimator, call, *how: seen.append((call, how)))
    monkeypatch.setitem(_declared.FUNCTIONS, "gae", fastgae.gae)
    gae = _declared.estimator()(fastgae.gae.__wrapped__)
    given = {**{name: object() for name in OF_GAE}, "stop_gradients": False}
    gae(**given)
    ((call, how),) = seen
    assert how == (given["backend"], given["num_threads"])
    assert Call(*call)._asdict() == {
        **Call(None, None, None)._asdict(),
        **{name: given[name] for name in Call._fields if name in given},
    }
