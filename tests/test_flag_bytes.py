"""A bool array may hold any byte, as a view of uint8 does: every byte but 0 is True, as in NumPy."""

from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._call import Role, names_of
from support.backends import BACKENDS
from support.cases import assert_same_bits, make_case
from support.functions import parameters
from support.good_calls import good_calls
from support.options import NEXT_STEP, OPTIONS, mask, together

SIZE = (33, 17)
FLAGS = names_of(Role.STEP_FLAGS, Role.ENV_FLAGS)


def bytes_of(name, flags):
    """The same flags, in which True is any byte from 1 to 255."""
    rng = np.random.default_rng([len(name), *flags.shape])
    return (flags * rng.integers(1, 256, flags.shape)).astype(np.uint8).view(bool)


def rollouts():
    """Yield (name, function, arguments) with every flag that a function takes, and with every option of gae."""
    dense, sparse = (make_case(SIZE, np.float32, bootstrap=kind) for kind in ("final_dense", "final_sparse"))
    reset = make_case(SIZE, np.float32, bootstrap="last_values")
    options = {**OPTIONS, "next_step": NEXT_STEP, "next_step_mask": together(NEXT_STEP, mask)}
    for name, option in options.items():
        case = reset if name.startswith("next_step") else dense
        truncated = {"truncated": dense.truncated} if case is reset else {}
        yield f"gae-{name}", fastgae.gae, {**case.arguments(), **truncated, **option(case)}
    finals = {**sparse.arguments(), "final_values": sparse.final_values[sparse.truncated]}
    yield "gae-sparse", fastgae.gae, finals
    yield "gae-sparse_mask", fastgae.gae, {**finals, **mask(sparse)}
    ended = {"rewards": dense.rewards, "terminated": np.ones(SIZE, bool), **mask(dense)}
    yield "discounted_returns-ended", fastgae.discounted_returns, ended
    for function, kind, arguments in good_calls(SIZE, np.float32):
        given = {name: array for name, array in arguments.items() if name != "out"}
        if any(name in FLAGS for name in given):
            yield f"{function}-{kind.replace(' ', '_')}", getattr(fastgae, function), given


CALLS = {name: call for name, *call in rollouts()}


@pytest.mark.parametrize("name", CALLS)
def test_every_byte_but_0_is_true(name):
    function, arguments = CALLS[name]
    given = [flag for flag in FLAGS if flag in arguments]
    takes = parameters(function.__name__)
    for time_axis in (0, 1) if arguments[given[0]].ndim == 2 and "time_axis" in takes else (0,):
        turned = (
            {key: swapped(value) for key, value in arguments.items()} | {"time_axis": 1} if time_axis else arguments
        )
        expected = function(**turned)
        for flags, backend in product([*([flag] for flag in given), given], BACKENDS if "backend" in takes else [None]):
            raw = {flag: bytes_of(flag, turned[flag]) for flag in flags}
            how = {"backend": backend} if backend else {}
            assert_equal(function(**{**turned, **raw}, **how), expected, f"{backend}, time_axis={time_axis}, {flags}:")


def assert_equal(got, expected, what):
    if isinstance(got, fastgae.Diagnosis):
        assert got.to_json() == expected.to_json()
    elif isinstance(got, fastgae.Moments):
        assert got == expected
    else:
        for array, right in zip(arrays_of(got), arrays_of(expected), strict=True):
            assert_same_bits(array, right, what)


def swapped(given):
    return np.ascontiguousarray(given.T) if isinstance(given, np.ndarray) else given


def arrays_of(result):
    return result if isinstance(result, tuple) else (result,)
