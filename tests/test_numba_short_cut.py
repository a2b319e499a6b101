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
ODD = (None, "text", object(), 1.5, np.ones(3), [[1.0]])


def call_of(dtype=DTYPES[0], bootstrap="last_values", time_axis=0, size=(STEPS, ENVS), **others):
    case = make_case(size, dtype, bootstrap=bootstrap).mapped(
        lambda name, array: array.T.copy() if time_axis and array.ndim == 2 else array
    )
    return Call(**case.arguments(), time_axis=time_axis)._replace(**others)


def poisoned(shape=(STEPS, ENVS), dtype=np.float32):
    return np.full(shape, 7, dtype)


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


def unaligned(array):
    return np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape)


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


@pytest.mark.parametrize("number", [1e39, -(10**400), float("nan"), float("inf"), True, np.float64(1), np.float32(1)])
def test_other_numbers_are_declined(number):
    assert short_cut(call_of()._replace(last_values=number), 1, None) is None


ARRAYS = ("rewards", "values", "terminated", "truncated", "last_values", "next_values")


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_odd_arrays_are_declined(name, time_axis):
    call = call_of(bootstrap="last_values" if name == "last_values" else "next_values", time_axis=time_axis)
    array, outputs = getattr(call, name), [poisoned(call.rewards.shape) for _ in range(2)]
    odd = [
        *(() if name == "truncated" else (None,)),
        *(each for each in ODD[1:] if not (name == "last_values" and isinstance(each, float))),
        array.astype(array.dtype.newbyteorder()) if array.dtype != bool else array.astype(np.int8),
        array.astype(np.float64),
        array[:-1],
        array[..., np.newaxis],
        array.view(np.ma.MaskedArray),
        np.repeat(array, 2, axis=-1)[..., ::2],
        array[::-1],
        *(() if array.dtype == bool else (unaligned(array),)),
        *(() if array.ndim == 1 else (np.asfortranarray(array), array[:, :1].repeat(array.shape[1], 1)[:, :0])),
    ]
    for wrong in odd:
        assert short_cut(call._replace(out=tuple(outputs), **{name: wrong}), 1, None) is None, wrong
    assert all((output == 7).all() for output in outputs)


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: odd} for name in ("gamma", "gae_lambda") for odd in (*ODD[:3], 1, -0.5, 1.5, float("nan"))),
        *({"time_axis": odd} for odd in (*ODD, 2, -1, True)),
        *({name: odd} for name in ("mask", "prev_done", "final_values", "last_advantages") for odd in ODD[1:]),
        *({name: odd} for name in ("returns_lambda", "normalize", "autoreset", "ratios") for odd in ODD[1:]),
        *({"tail_normalized": odd} for odd in (True, *ODD)),
        *({"out": odd} for odd in (*ODD[1:], (), (None, None), (poisoned(), "text"), [poisoned(), poisoned()])),
        *({"out": (poisoned(shape), None)} for shape in ((STEPS + 1, ENVS), (ENVS, STEPS), (STEPS * ENVS,))),
        *({"out": (None, odd(poisoned()))} for odd in (np.asfortranarray, read_only, unaligned, np.float64)),
        {"last_values": None},
        {"next_values": poisoned()},
        {"truncated": np.zeros((STEPS, ENVS), bool)},
    ],
)
def test_what_is_unusual_is_declined(wrong):
    outputs = poisoned(), poisoned()
    assert short_cut(call_of(out=outputs)._replace(**wrong), 1, None) is None
    assert all((output == 7).all() for output in outputs)


def test_outputs_that_overlap_are_declined():
    call, memory = call_of(bootstrap="next_values"), poisoned((STEPS + 1, ENVS))
    flags = np.zeros((STEPS, ENVS, 4), bool)
    call = call._replace(terminated=flags.reshape(-1)[: STEPS * ENVS].reshape(STEPS, ENVS))
    inputs = [call.rewards, call.values, call.next_values, flags.view(np.float32)[..., 0]]
    pairs = [(array, memory[1:]) for array in inputs]
    for out in ((memory[1:], memory[1:]), (memory[1:], memory[:-1]), *pairs, *(pair[::-1] for pair in pairs)):
        before = np.array(out)
        assert short_cut(call._replace(out=out), 1, None) is None
        np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("name", Call._fields)
def test_an_argument_that_is_not_read_declines_the_call(name):
    call = call_of()
    assert short_cut(call, 1, None) is not None
    assert short_cut(call._replace(**{name: object()}), 1, None) is None
