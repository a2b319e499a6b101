"""The caller's code never runs while the compiled module holds pointers into arrays."""

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET

pytest.importorskip("fastgae._core", exc_type=ImportError)


class Switch:
    """The truth of it takes code, which may do anything."""

    def __init__(self, code):
        self.code = code

    def __bool__(self):
        return self.code()


def raising():
    raise KeyError("the truth of it")


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_tail_normalized_is_true_or_false(backend):
    call, out = (np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool)), tuple(np.full((2, 4, 3), 7.0))
    for given in (Switch(raising), Switch(lambda: True), None, 1, "no"):
        with pytest.raises(TypeError, match="tail_normalized must be True or False"):
            fastgae.gae(*call, tail_normalized=given, out=out, backend=backend)
        assert all((array == 7).all() for array in out)
    for switch in (False, True):
        got, expected = (
            fastgae.gae(*call, tail_normalized=each, backend=backend) for each in (np.bool_(switch), switch)
        )
        np.testing.assert_array_equal(got, expected)


def test_code_of_a_switch_does_not_run(python):
    """It resized the rewards while the kernel read them."""
    code = """
import numpy as np, fastgae

rewards, values, terminated = np.ones((2000, 2000)), np.ones((2001, 2000)), np.zeros((2000, 2000), bool)

class Switch:
    def __bool__(self):
        rewards.resize((1, 1), refcheck=False)
        return False

try:
    fastgae.gae(rewards, values, terminated, tail_normalized=Switch(), backend="cpp", num_threads=1)
except TypeError as error:
    print(rewards.shape, error)
"""
    assert python(code).startswith("(2000, 2000) tail_normalized must be True or False")


def test_cpus_are_counted_before_arrays_are_looked_at(python):
    """What counts them is Python code, and may let others run: here it resizes the rewards and empties ``out``."""
    code = """
import numpy as np, fastgae
from fastgae import _core
from fastgae._backends import cpp
from fastgae._call import ABSENT, EPS, NEW, GAEResult

rewards, values, terminated = np.ones((2000, 2000)), np.ones((2001, 2000)), np.zeros((2000, 2000), bool)
out = [np.ones((2000, 2000)), np.ones((2000, 2000))]

def usable_cpus():
    if rewards.size > 1:
        rewards.resize((1, 1), refcheck=False)
    out.clear()
    return 2

_core.connect(GAEResult, NEW, ABSENT, usable_cpus, EPS)
for options in ({}, {"returns_lambda": 0.5}):
    rewards.resize((2000, 2000), refcheck=False)
    try:
        fastgae.gae(rewards, values, terminated, backend="cpp", **options)
    except ValueError as error:
        print(rewards.shape, "values has shape" in str(error))

call = (*(None,) * 8, 0.9, 0.9, None, None, False, 0)
rewards.resize((2000, 2000), refcheck=False)
out += [np.ones((2000, 2000))] * 2
print(_core.short_cut((rewards, values, terminated, *call, out), 0, "baseline"))

def usable_cpus():
    rewards.flags.aligned = False  # so the short cut must decline the array
    return 2

_core.connect(GAEResult, NEW, ABSENT, usable_cpus, EPS)
rewards.resize((2000, 2000), refcheck=False)
print(_core.short_cut((rewards, values, terminated, *call), 0, "baseline"))
rewards = np.ones((2000, 2000))

def usable_cpus():
    raise KeyError("no CPUs")

_core.connect(GAEResult, NEW, ABSENT, usable_cpus, EPS)
try:
    _core.short_cut((rewards, values, terminated, *call), 0, "baseline")
except KeyError as error:
    print(error)
"""
    assert python(code) == "(1, 1) True\n(1, 1) True\nNone\nNone\n'no CPUs'"


def test_huge_integers_leave_no_error_behind():
    given = np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool)
    with pytest.raises(ValueError, match="gamma must be a number"):
        fastgae.gae(*given, gamma=10**400, backend="cpp")
