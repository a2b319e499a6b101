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
# Past kNarrowSteps of csrc/tuning.hpp, from which on the compiled kernels widen a rollout piece by piece: more than one
# piece along time and along envs, and remainders of both.
IN_PIECES = (2100, 37)


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
EXTRA = {
    "plain": {},
    "mask": {"mask": True},
    "lambda for returns": {"returns_lambda": 0.5},
    "per_env": {"normalize": "per_env"},
    "advantages": {"out": True},
}


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("bootstrap", OPTIONS)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("cpp")])  # no other takes pieces
def test_pieces(backend, extra, bootstrap):
    for kind, time_axis in product(FORMATS, (0, 1)):
        in_pieces(backend, kind, time_axis, extra, bootstrap)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("cpp")])
def test_pieces_of_few_envs(backend):
    """Rows of one or two vectors keep A in registers, from which the next piece needs it."""
    rng = np.random.default_rng(0)
    for envs in (4, 5, 8, 9, 16, 17, 31):
        shape = 70_000 // envs, envs
        rewards, values = (narrow(rng.normal(size=shape), "bfloat16") for _ in range(2))
        given = {"terminated": rng.random(shape) < 0.05, "last_values": 0.5, "backend": backend}
        got, expected = fastgae.gae(rewards, values, **given), fastgae.gae(widened(rewards), widened(values), **given)
        assert_same_bits(got.advantages, expected.advantages, f"{envs} envs")


def in_pieces(backend, kind, time_axis, extra, bootstrap):
    case = make_case(IN_PIECES, np.float32, flags="random", **OPTIONS[bootstrap])
    arguments = case.arguments()
    if case.sparse:
        arguments["final_values"] = arguments["final_values"][arguments["truncated"].astype(bool)]
    settings = dict(EXTRA[extra])
    if settings.pop("mask", False):
        settings["mask"] = np.random.default_rng(3).random(IN_PIECES) < 0.6
    if time_axis == 1:
        if case.sparse:
            dense = case.final_values.T
            arguments["final_values"] = dense[case.truncated.astype(bool).T]
        arguments, settings = (
            {name: np.ascontiguousarray(given.T) if np.ndim(given) == 2 else given for name, given in each.items()}
            for each in (arguments, settings)
        )
    taken, wide = both(arguments, kind)
    only_advantages = settings.pop("out", False)
    how = {"time_axis": time_axis, **settings, "backend": backend}
    expected = fastgae.gae(**wide, **how, num_threads=1)
    for threads in (1, 2):
        shape = arguments["rewards"].shape
        out = {"out": (np.full(shape, np.nan, np.float32), None)} if only_advantages else {}
        got = fastgae.gae(**taken, **how, **out, num_threads=threads)
        what = f"{kind}, time_axis={time_axis}, {threads} threads:"
        assert_same_bits(got.advantages, expected.advantages, what)
        if not only_advantages:
            assert_same_bits(got.returns, expected.returns, what)


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
