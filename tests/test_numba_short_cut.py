"""The short cut of the Numba backend takes common calls, and declines every other one with nothing written."""

import numpy as np
import pytest

import fastgae
from fastgae._call import NEW, Call
from support.backends import BACKENDS, DTYPES
from support.cases import assert_same_bits, make_case

if "numba" not in BACKENDS:
    pytest.skip("numba is not installed", allow_module_level=True)

from fastgae._backends.numba import short_cut

STEPS, ENVS = 9, 7


def call_of(dtype=DTYPES[0], bootstrap="last_values", time_axis=0, size=(STEPS, ENVS), **others):
    case = make_case(size, dtype, bootstrap=bootstrap).mapped(
        lambda name, array: array.T.copy() if time_axis and array.ndim == 2 else array
    )
    return Call(**case.arguments(), time_axis=time_axis)._replace(**others)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("bootstrap", ["last_values", "longer_values", "next_values"])
@pytest.mark.parametrize("size", [(STEPS, ENVS), (1, ENVS), (STEPS, 1), (1, 1)])
def test_common_calls_are_taken(dtype, time_axis, bootstrap, size):
    call = call_of(dtype, bootstrap, time_axis, size)
    right = fastgae.gae(**{name: given for name, given in call._asdict().items() if name in TAKEN}, backend="numpy")
    if time_axis and size[0] == 1:
        assert short_cut(call, 1, None) is None
        return
    like = call.rewards
    for out in (None, (NEW, None), (None, NEW), (np.empty_like(like), NEW), (np.empty_like(like), np.empty_like(like))):
        result = short_cut(call._replace(out=out), 1, None)
        for array, asked, expected in zip(result, out or (NEW, NEW), right, strict=True):
            if asked is None:
                assert array is None
            else:
                assert asked is NEW or array is asked
                assert_same_bits(array, expected)


TAKEN = ("rewards", "values", "terminated", "truncated", "last_values", "next_values", "time_axis")


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def test_read_only_inputs_are_taken():
    call = call_of()
    assert short_cut(call._replace(rewards=read_only(call.rewards)), 1, None) is not None
    assert short_cut(tuple(call[:5]), 1, None) is not None  # the last arguments of a call may be missing


@pytest.mark.parametrize("number", [0, 0.37, -2])
@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("size", [(STEPS, ENVS), (STEPS, 1)])
def test_sequences_are_taken(number, time_axis, size):
    call = call_of(time_axis=time_axis, size=size)
    never, last = np.zeros_like(call.terminated), np.full(size[1], number, np.float32)
    expected = short_cut(call._replace(terminated=never, last_values=last), 1, None)
    for array, right in zip(
        short_cut(call._replace(terminated=None, last_values=number), 1, None), expected, strict=True
    ):
        assert_same_bits(array, right)
