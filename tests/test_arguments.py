"""Single arguments that were once taken for others, and what every function says where one is wrong."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import fastgae
from support.backends import ONE_TARGET
from support.cases import assert_same_bits, make_case
from support.functions import gives_two, parameters
from support.good_calls import good_calls

SHAPE = (4, 3)
ONES = np.ones(SHAPE)
ENDED = np.zeros(SHAPE, bool)
ROLLOUT = {"rewards": ONES, "values": ONES, "terminated": ENDED, "last_values": ONES[0]}
PACKED = {"rewards": ONES[:, 0], "values": ONES[:, 0], "cu_seqlens": np.array([0, 1, 4]), "gamma": 0.9}


@pytest.fixture(params=ONE_TARGET)
def backend(request):
    """Return one CPU target of each backend, because kernels check nothing."""
    return request.param


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "starts",
    [
        np.array([0, 2**63 - 1, -2, 4]),
        np.array([0, 2**64 - 1, 2, 4], np.uint64),
        np.array([0, 2**63, 4], np.uint64),
        np.array([0, 255, 4], np.uint8),
        np.array([0, 127, -128, 4], np.int8),
    ],
    ids=str,
)
def test_cu_seqlens_are_compared_and_not_subtracted(starts, masked):
    mask = {"mask": np.ones(4, bool)} if masked else {}
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to the number of steps, 4"):
        fastgae.gae_packed(**{**PACKED, "cu_seqlens": starts}, **mask)


@pytest.mark.parametrize("last_values", [None, np.ones(2)], ids=["ends", "last_values"])
@pytest.mark.parametrize("step", range(4))
def test_flags_are_checked_before_they_are_merged_with_the_ends(last_values, step):
    flags = np.zeros(4, int)
    flags[step] = 5
    with pytest.raises(ValueError, match=rf"terminated must hold 0 or 1, got 5 at index \({step},\)"):
        fastgae.gae_packed(**PACKED, terminated=flags, last_values=last_values)


def test_a_longer_values_is_named(backend):
    with pytest.raises(ValueError, match=r"values has shape \(5,\); expected rewards' shape, \(4,\)"):
        fastgae.gae_packed(**{**PACKED, "values": np.ones(5)}, backend=backend)


@pytest.mark.parametrize("eps", [np.float32(0.5), np.array(0.5), np.int64(1), 1, Fraction(1, 2), 10**300], ids=repr)
def test_numbers_that_may_be_eps(backend, eps):
    got = fastgae.normalize(np.arange(4.0), eps=eps, backend=backend)
    assert_same_bits(got, fastgae.normalize(np.arange(4.0), eps=float(eps), backend="numpy"))


@pytest.mark.parametrize("clip", ["rho_clip", "c_clip", "advantage_clip"])
@pytest.mark.parametrize("given", [1e300, np.float64(1e300), np.array(1e300), 10**300, np.inf], ids=repr)
def test_a_clip_beyond_the_working_dtype_clips_nothing(backend, clip, given):
    case = make_case((9, 5), np.float32, bootstrap="last_values")
    arguments = {name: value for name, value in case.arguments().items() if name != "gae_lambda"}
    ratios = np.exp(case.values)
    expected = fastgae.vtrace(**arguments, ratios=ratios, **{clip: None}, backend="numpy")
    got = fastgae.vtrace(**arguments, ratios=ratios, **{clip: given}, backend=backend)
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right)


def test_a_python_number_beyond_the_working_dtype_is_infinity(backend):
    one, ended = np.ones(1, np.float32), np.zeros(1, bool)
    got = fastgae.gae(one, one, ended, last_values=1e300, backend=backend)
    assert_same_bits(got.returns, np.full(1, np.inf, np.float32))


@pytest.mark.parametrize("finals", [np.zeros((0, 3)), np.zeros(0)], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", [(0, 3), (0,), (3, 0)], ids=str)
def test_n_step_returns_of_nothing(shape, finals):
    nothing, flags = np.zeros(shape), np.zeros(shape, bool)
    finals = nothing if finals.ndim > 1 else finals
    got = fastgae.n_step_returns(
        nothing, nothing, flags, flags, n=3, last_values=np.zeros(shape[1:]), final_values=finals
    )
    assert got.shape == shape


def overlapping(shape, strides):
    """float64 elements of a fresh block, as far apart as these numbers of elements."""
    size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    return as_strided(np.full(size, 7.0), shape, [8 * stride for stride in strides])


# Every function that fills one array, without its out.
SINGLE = {
    function: {name: given for name, given in arguments.items() if name != "out"}
    for function, _, arguments in good_calls(SHAPE)
    if "out" in arguments and not gives_two(function)
}


def filled(function, backend, **out):
    how = {"backend": backend} if "backend" in parameters(function) else {}
    return getattr(fastgae, function)(**SINGLE[function], **how, **out)


@pytest.mark.parametrize("name", SINGLE)
def test_an_out_that_overlaps_itself(backend, name):
    for strides in [(1, 1), (2, 1), (1, 2), (1, 0), (0, 1), (2, 4), (1, 3)]:
        out = overlapping(SHAPE, strides)
        with pytest.raises(ValueError, match="out is an overlapping or broadcast view"):
            filled(name, backend, out=out)
        assert (out == 7.0).all()


@pytest.mark.parametrize("name", SINGLE)
def test_an_out_whose_axes_interleave_is_filled(backend, name):
    """Elements between those of another row, as no slice has them, and none of them twice."""
    expected = filled(name, "numpy")
    for strides in [(3, 1), (1, 4), (7, 2), (2, 9), (5, 2), (3, 2)]:
        out = overlapping(SHAPE, strides)
        assert filled(name, backend, out=out) is out
        assert_same_bits(out, expected, f"strides {strides}")


@pytest.mark.parametrize("name", SINGLE)
def test_an_only_out_is_named_as_the_caller_knows_it(backend, name):
    first = next(iter(parameters(name)))
    like = f"{first}'{'' if first.endswith('s') else 's'} shape"
    read_only = np.ones(SHAPE)
    read_only.flags.writeable = False
    for out, error, message in (
        ((ONES, ONES), TypeError, "out must be a NumPy array, got tuple"),
        (np.ones((3, 4)), ValueError, rf"out has shape \(3, 4\); expected {like}, \(4, 3\)"),
        (np.ones(SHAPE, np.float32), TypeError, "out has dtype float32; expected the working dtype float64"),
        (read_only, ValueError, "out is read-only"),
    ):
        with pytest.raises(error, match=message):
            filled(name, backend, out=out)


def test_normalize_with_its_mask_in_the_memory_of_out(backend):
    numbers = np.arange(12.0).reshape(SHAPE)
    exists = numbers % 3 != 0
    expected = fastgae.normalize(numbers, exists, backend="numpy")
    out = np.zeros(SHAPE)
    mask = out.view(bool)[:, :3]
    mask[...] = exists
    assert_same_bits(fastgae.normalize(numbers, mask, out=out, backend=backend), expected)
