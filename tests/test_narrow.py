"""Numbers of 16 bits, float16 and bfloat16: the results are those of the same numbers as float32, bit for bit."""

from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._call import NUMBERS
from fastgae._interop.arrays import BFLOAT16, widened
from support.backends import BACKENDS
from support.cases import assert_same_bits, make_case

FORMATS = ["float16", "bfloat16"]
ALL_BITS = np.arange(1 << 16, dtype=np.uint16)
BY_THREADS = (4200, 67)  # enough steps for two threads, which widen an odd number of them


def narrow(array, kind):
    """Return the array in 16 bits, rounded to float16 or cut to bfloat16."""
    if kind == "float16":
        return array.astype(np.float16)
    return np.asarray(array.astype(np.float32).view(np.uint32) >> 16, np.uint16).view(BFLOAT16)


def both(arguments, kind):
    """Return the arguments with numbers of 16 bits, and with the same numbers as float32."""
    taken = {
        name: narrow(given, kind) if name in NUMBERS and isinstance(given, np.ndarray) else given
        for name, given in arguments.items()
    }
    return taken, {name: widened(given) if isinstance(given, np.ndarray) else given for name, given in taken.items()}


def test_every_bfloat16_is_the_upper_half_of_a_float32():
    assert_same_bits(widened(ALL_BITS.view(BFLOAT16)), (ALL_BITS.astype(np.uint32) << 16).view(np.float32))


@pytest.mark.parametrize("shape", [(1 << 16,), (1 << 10, 1 << 6), (1 << 3, 1 << 13), (100, 37)])
@pytest.mark.parametrize("time_axis", [0, -1])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_bit_pattern_goes_through_the_kernels(backend, kind, shape, time_axis):
    """The advantage of a last step without a value is its reward."""
    given = np.resize(ALL_BITS, shape).view(np.float16 if kind == "float16" else BFLOAT16)
    ends = np.ones(shape, bool)
    last_values = np.zeros(np.delete(shape, time_axis), np.float32)
    got = fastgae.gae(
        given, np.zeros(shape, np.float32), ends, last_values=last_values, time_axis=time_axis, backend=backend
    )
    assert_same_bits(got.advantages, widened(given))


OPTIONS = {
    "longer values": {"bootstrap": "longer_values"},
    "last values": {"bootstrap": "last_values"},
    "next values": {"bootstrap": "next_values"},
    "final values": {"bootstrap": "final_dense"},
    "sparse final values": {"bootstrap": "final_sparse"},
}
EXTRA = {"plain": {}, "mask": {"mask": True}, "per_env": {"normalize": "per_env"}}


def with_gaps(given):
    """Return a matrix with the same numbers, whose rows do not follow each other in memory."""
    return np.concatenate([given, given], axis=1)[:, : given.shape[1]] if np.ndim(given) == 2 else given


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("bootstrap", OPTIONS)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("cpp")])  # others widen by NumPy
def test_threads_widen_all_inputs(backend, extra, bootstrap):
    case = make_case(BY_THREADS, np.float32, flags="random", **OPTIONS[bootstrap])
    arguments = case.arguments() | EXTRA[extra]
    if "mask" in arguments:
        arguments["mask"] = np.random.default_rng(3).random(BY_THREADS) < 0.6
    for kind, time_axis in product(FORMATS, (0, 1)):
        matrices = {name: given.T if time_axis else given for name, given in arguments.items() if np.ndim(given) == 2}
        given = arguments | {name: np.ascontiguousarray(matrix) for name, matrix in matrices.items()}
        if case.sparse:
            given["final_values"] = given["final_values"][given["truncated"].astype(bool)]
        taken, wide = both(given, kind)
        expected = fastgae.gae(**wide, time_axis=time_axis, backend=backend, num_threads=1)
        for threads, gaps in product((1, 2), (False, True)):
            laid = {name: with_gaps(array) if gaps else array for name, array in taken.items()}
            got = fastgae.gae(**laid, time_axis=time_axis, backend=backend, num_threads=threads)
            what = f"{kind}, time_axis={time_axis}, {threads} threads, gaps={gaps}:"
            assert_same_bits(got.advantages, expected.advantages, what)
            assert_same_bits(got.returns, expected.returns, what)


@pytest.mark.parametrize("kind", FORMATS)
def test_recursions_without_values(kind, backend):
    numbers = narrow(np.array([[1.0, -0.0], [-0.0, 2.0], [0.5, -0.0]]), kind)
    for steps in (1, 3):
        taken = numbers[:steps]
        for function, more in (
            (fastgae.reverse_scan, {"decay": 0.5, "initial": -0.0}),
            (fastgae.discounted_returns, {"terminated": None, "last_values": -0.0, "gamma": 0.5}),
        ):
            got = function(taken, **more, backend=backend)
            assert_same_bits(got, function(widened(taken), **more, backend=backend), f"{steps} steps:")


@pytest.mark.parametrize("kind", FORMATS)
def test_gamma_is_not_rounded_to_16_bits(kind, backend):
    given = {"terminated": np.zeros(4, bool), "last_values": 0, "gae_lambda": 1.0, "backend": backend}
    got = fastgae.gae(narrow(np.ones(4), kind), narrow(np.zeros(4), kind), **given, gamma=0.99)
    assert got.advantages[2] == np.float32(1) + np.float32(0.99)
    with pytest.raises(TypeError, match=r"gamma has dtype .*0\.99 is another number: pass float32 or float64"):
        fastgae.gae(narrow(np.ones(4), kind), np.zeros(4), **given, gamma=narrow(np.ones(4), kind))


@pytest.mark.parametrize("kind", FORMATS)
def test_flags_of_16_bits(kind, backend):
    ones = np.ones((4, 3), np.float32)
    given = {"last_values": ones[0], "backend": backend}
    flags = np.eye(4, 3, dtype=np.float32)
    got = fastgae.gae(ones, ones, narrow(flags, kind), **given)
    assert_same_bits(got.advantages, fastgae.gae(ones, ones, flags == 1, **given).advantages)
    with pytest.raises(ValueError, match="terminated must hold 0 or 1"):
        fastgae.gae(ones, ones, narrow(flags / 2, kind), **given)
