"""Numbers of 16 bits, float16 and bfloat16: the results are those of the same numbers as float32, bit for bit."""

from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._call import NUMBERS
from fastgae._interop.arrays import BFLOAT16, widened
from support.backends import BACKENDS
from support.cases import assert_same_bits, make_case
from support.functions import FUNCTIONS
from support.good_calls import good_calls
from support.layouts import layouts_of

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


def assert_like_float32(function, arguments, kind, backend=None, num_threads=None):
    taken, wide = both(arguments, kind)
    settings = {} if backend is None else {"backend": backend}
    threads = {} if num_threads is None else {"num_threads": num_threads}
    got, expected = function(**taken, **settings, **threads), function(**wide, **settings)
    if isinstance(expected, fastgae.Diagnosis):
        assert got.as_dict() == expected.as_dict()
        return
    if not isinstance(expected, tuple | np.ndarray):
        assert got == expected
        return
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    for result, right in pairs:
        assert result.dtype == right.dtype
        assert_same_bits(result, right)


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


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param(name, arguments, id=f"{name}-{what}")
        for name, what, arguments in good_calls(size=(19, 35), dtype=np.float32)
        if name in FUNCTIONS
    ],
)
def test_every_function(name, arguments, kind):
    assert_like_float32(getattr(fastgae, name), arguments, kind)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_layout(kind, backend):
    for layout, size in product(layouts_of(backend), ((1, 1), (33, 40))):
        case = make_case(layout.size(size), np.float32, bootstrap="last_values")
        arguments, _ = layout.arguments(case)
        taken = {
            name: _in_place(given, kind) if name in NUMBERS and isinstance(given, np.ndarray) else given
            for name, given in arguments.items()
        }
        wide = {name: widened(given) if isinstance(given, np.ndarray) else given for name, given in taken.items()}
        got, expected = fastgae.gae(**taken, backend=backend), fastgae.gae(**wide, backend=backend)
        for result, right in zip(got, expected, strict=True):
            assert_same_bits(result, right, layout.name)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
@pytest.mark.parametrize("kind", FORMATS)
def test_no_steps(kind, shape, backend):
    given = narrow(np.zeros(shape), kind)
    got = fastgae.gae(given, given, given, last_values=narrow(np.zeros(shape[1:]), kind), backend=backend)
    assert [(array.shape, array.dtype) for array in got] == [(shape, np.float32)] * 2


def _in_place(array, kind):
    """Return the array in 16 bits, with strides in proportion, and in the same byte order where NumPy has it."""
    if kind == "float16" and not array.dtype.isnative:
        return array.astype(">f2" if np.little_endian else "<f2")
    made = narrow(np.array(array.astype(np.float32), order="C"), kind)
    memory = np.zeros(tuple(2 * n + 1 for n in array.shape), made.dtype)
    gaps = any(stride not in (0, array.itemsize) for stride in array.strides[-1:])
    view = memory[tuple(slice(1, 2 * n + 1, 2) for n in array.shape)] if gaps else made
    view[...] = made
    if 0 in array.strides and array.size:
        return np.broadcast_to(view[tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)], array.shape)
    return view


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
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("int8", "float32"),
        ("int16", "float32"),
        ("int32", "float64"),
        ("int64", "float64"),
        ("float16", "float32"),
        (">f2", "float32"),
    ],
)
def test_mixtures_promote_as_float32_does(kind, other, expected, backend):
    rewards = narrow(np.arange(12.0).reshape(4, 3), kind)
    given = {"terminated": np.zeros((4, 3), bool), "last_values": rewards[0], "backend": backend}
    values = np.arange(12).reshape(4, 3).astype(other)
    got = fastgae.gae(rewards, values, **given)
    assert got.advantages.dtype == expected
    right = fastgae.gae(widened(rewards), widened(values), **given)
    assert_same_bits(got.advantages, right.advantages)


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


@pytest.mark.parametrize("kind", FORMATS)
def test_out_of_16_bits_is_refused(kind, backend):
    ones, ends = narrow(np.ones((4, 3)), kind), np.ones((4, 3), bool)
    out = np.zeros_like(ones)
    with pytest.raises(TypeError, match=r"out\[1\] has dtype .*; expected the working dtype float32"):
        fastgae.gae(ones, ones, ends, last_values=ones[0], out=(None, out), backend=backend)
    with pytest.raises(TypeError, match="expected the working dtype float32"):
        fastgae.normalize(ones, out=out, backend=backend)
    assert (out.view(np.uint16) == 0).all()
