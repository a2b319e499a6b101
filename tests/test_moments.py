"""Exact statistics: against fractions, for every split, order, backend and layout, and as a value."""

import copy
import dataclasses
import decimal
import itertools
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import fastgae
from fastgae import Moments
from fastgae._engine import dispatch
from fastgae._equation import exact_sums
from support.cases import assert_same_bits

DIGITS = decimal.Context(prec=3000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)  # more than any exact square has
EDGES = [0.0, -0.0, 1.0, -1.0, 1.5, 1 / 3]


def any_numbers(dtype, size):
    """Return numbers of every exponent and sign, subnormal ones, and the edges of the dtype."""
    rng = np.random.default_rng([0, dtype.itemsize])
    raw = rng.integers(0, 256, (size, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    numbers = raw[np.isfinite(raw)]
    limits = np.finfo(dtype)
    edges = [*EDGES, limits.max, limits.min, limits.tiny, limits.smallest_subnormal, limits.tiny / 4, 1 + limits.eps]
    subnormal = limits.smallest_subnormal * rng.integers(-1000, 1000, 20).astype(dtype)
    return rng.permutation(np.concatenate([numbers, np.array(edges, dtype), subnormal])).astype(dtype)


def nearest(fraction):
    """Round a fraction to float64."""
    try:
        return float(fraction)
    except OverflowError:
        return math.inf


def nearest_root(fraction):
    numerator, denominator = decimal.Decimal(fraction.numerator), decimal.Decimal(fraction.denominator)
    return float(DIGITS.sqrt(DIGITS.divide(numerator, denominator)))


def test_sums_and_quotients_are_those_of_fractions(backend, dtype):
    rng, limits = np.random.default_rng(1), np.finfo(dtype)
    for numbers in (
        any_numbers(dtype, 500),
        rng.normal(0.3, 2.0, 3000),
        rng.uniform(1, 2, 500),  # of one exponent
        rng.uniform(-1, 1, 300) * float(limits.max),
        rng.integers(-(2**20), 2**20, 300) * limits.smallest_subnormal,
        np.full(333, 0.1),
    ):
        given = numbers.astype(dtype)
        got, exact = fastgae.moments(given, backend=backend), [Fraction(float(number)) for number in given]
        assert got.count == len(exact)
        total, squares = sum(exact), sum(number**2 for number in exact)
        assert (Fraction(got.total, 2**1074), Fraction(got.total_of_squares, 2**2148)) == (total, squares)
        mean, variance = total / len(exact), squares / len(exact) - (total / len(exact)) ** 2
        assert (got.mean, got.variance, got.std) == (nearest(mean), nearest(variance), nearest_root(variance))


def test_a_root_beside_the_middle_of_two_floats():
    """The middle rounds to the even float, and the smallest difference decides."""
    below, above = float(2**53), float(2**53 + 2)
    for bits, (offset, expected) in itertools.product((1, 20, 300, 2000), {-1: below, 0: below, 1: above}.items()):
        middle = (2**53 + 1) * 2**bits  # between two floats
        assert exact_sums.root_of_quotient((middle**2 << 400) + offset, 1 << 400 + 2 * bits) == expected


def test_numbers_of_other_dtypes_are_converted_and_merged():
    single = np.random.default_rng(4).normal(size=50).astype(np.float32)
    double = any_numbers(np.dtype(np.float64), 50)
    one, other = fastgae.moments(single), fastgae.moments(double)
    assert one + other == other + one == fastgae.moments(np.concatenate([single, double]))
    large = fastgae.moments(np.array([1e300, -1e300]))
    assert (large.mean, large.variance, large.std) == (0.0, math.inf, 1e300)
    expected = fastgae.moments(np.array([1.0, 2.0, 3.0]))
    for given in ([1, 2, 3], [1.0, 2.0, 3.0], np.arange(1, 4, dtype=np.int8), np.array([1, 2, 3], ">f4")):
        assert fastgae.moments(given) == expected
    assert fastgae.moments(np.array([True, False])).mean == 0.5


def test_numbers_that_are_not_finite(backend, dtype):
    """The mean is what additions of IEEE 754 give in any order; no deviation from it is a number."""
    finite = fastgae.moments(np.array([1.0, 2.0]))
    for odd in ([np.nan], [np.inf, np.inf], [-np.inf], [np.inf, -np.inf], [np.nan, np.inf]):
        numbers = np.array([*odd, 1.0, 2.0], dtype)
        for order in itertools.permutations(numbers):
            got = fastgae.moments(np.array(order), backend=backend)
            assert got == fastgae.moments(np.array(order[:1])) + fastgae.moments(np.array(order[1:]))
            assert (got.count, got.total, got.total_of_squares) == (len(numbers), finite.total, finite.total_of_squares)
            with np.errstate(invalid="ignore"):
                np.testing.assert_equal(got.mean, float(np.add.reduce(order)))
        np.testing.assert_equal([got.variance, got.std], [math.nan] * 2)
        assert np.isnan(got.normalize(np.ones(3, dtype), backend=backend)).all()


def test_not_finite_numbers_are_counted_in_every_run(backend, dtype):
    """They are looked for only in runs that have some, so runs with them stand between runs without."""
    numbers = np.ones((3, 10_000), dtype)
    numbers[0, 4096], numbers[1, :5], numbers[2, -1], numbers[2, -2] = np.nan, np.inf, -np.inf, np.nan
    got = fastgae.moments(numbers, backend=backend)
    assert got == Moments(30_000, 2, 5, 1, (30_000 - 8) << 1074, (30_000 - 8) << 2148)
    assert got + got == Moments(60_000, 4, 10, 2, 2 * got.total, 2 * got.total_of_squares)
    nothing = fastgae.moments(numbers[:0], numbers[:0] > 0, backend=backend)
    assert repr(nothing) == repr(Moments()) == "Moments(count=0, mean=nan, std=nan)"


def test_moments_that_no_numbers_have():
    for fields, error, words in (
        ({"count": 2, "total": 5 << 1074, "total_of_squares": 1}, ValueError, "total_of_squares is too small"),
        ({"count": -1}, ValueError, "count must not be negative, got -1"),
        ({"count": 1, "nans": 2}, ValueError, "count is 1, but 2 numbers are not finite"),
        ({"count": 1, "total_of_squares": -1}, ValueError, "total_of_squares must not be negative"),
        ({"count": 2.0}, TypeError, "count must be an int, got 2.0"),
        ({"total": "5"}, TypeError, "total must be an int, got '5'"),
    ):
        with pytest.raises(error, match=words):
            Moments(**fields)


def test_arrays_too_large_for_the_bins_are_halved(monkeypatch):
    numbers = any_numbers(np.dtype(np.float32), 300)[:240].reshape(4, 60)
    mask = np.random.default_rng(8).random(numbers.shape) < 0.7
    expected, masked = fastgae.moments(numbers), fastgae.moments(numbers, mask)
    module, sizes = dispatch.choose(None, None).module, []

    def counted(matrix, mask):
        sizes.append(matrix.size)
        return module.exact_sums(matrix, mask)

    chosen = dispatch.Chosen(type("Counted", (), {"exact_sums": counted}), None, 0, None)
    monkeypatch.setattr(dispatch, "choose", lambda *given: chosen)
    monkeypatch.setattr("fastgae.estimators.moments.MOST_AT_ONCE", 50)
    assert (fastgae.moments(numbers), fastgae.moments(numbers, mask)) == (expected, masked)
    assert max(sizes) <= 50
    assert sum(sizes) == 2 * 240


def test_the_bins_have_room(backend, dtype):
    """As many digits as one array may have fit into an int64."""
    module = dispatch.choose(backend, None).module
    for number in any_numbers(dtype, 200):
        bins, _ = module.exact_sums(np.full((1, 1), number), None)
        assert np.abs(bins).max() <= exact_sums.DIGIT
    assert exact_sums.DIGIT * exact_sums.MOST_AT_ONCE < 2**63


def test_a_moments_is_a_value(dtype):
    got = fastgae.moments(any_numbers(dtype, 300))
    assert pickle.loads(pickle.dumps(got)) == copy.deepcopy(got) == got
    assert hash(copy.deepcopy(got)) == hash(got)
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.count = 3
    assert not hasattr(got, "__dict__")
    assert got != fastgae.moments([1.0])
    assert got + Moments() == Moments() + got == got
    assert repr(fastgae.moments([1.0, 2.0])) == "Moments(count=2, mean=1.5, std=0.5)"
    with pytest.raises(TypeError):
        got + 1
    assert Moments(**json.loads(json.dumps(dataclasses.asdict(got)))) == got


def test_normalize_is_that_of_the_mean_and_the_standard_deviation(backend, dtype):
    """``fuzz`` compares that with its equation. Here it is in any layout, by parts, and in the memory of its input."""
    rng = np.random.default_rng(9)
    given = rng.normal(3, 2, (40, 6)).astype(dtype)
    moments = fastgae.moments(rng.normal(1, 7, 100)) + fastgae.moments(given)
    for array, eps in ((given, 1e-8), (given[::-2, 1:], 0.5), (given.T, 0.5)):
        mask = rng.random(array.shape) < 0.7
        expected = fastgae.normalize(array, mean=moments.mean, std=moments.std, eps=eps, backend="numpy")
        assert_same_bits(moments.normalize(array, eps=eps, backend=backend, num_threads=3), expected)
        got = moments.normalize(array, mask, eps=eps, backend=backend)
        assert_same_bits(got, np.where(mask, expected, dtype.type(0)))
    whole = moments.normalize(given, backend=backend)
    parts = [moments.normalize(part, backend=backend) for part in np.split(given, [1, 17, 20])]
    assert_same_bits(np.concatenate(parts), whole)
    for places in (slice(0, 40), slice(1, 41)):
        memory = np.zeros((41, 6), dtype)
        memory[:40] = given
        out = memory[places]
        assert moments.normalize(memory[:40], out=out, backend=backend) is out
        assert_same_bits(out, whole)
    assert (fastgae.moments([2.0, 2.0]).normalize(np.full(5, 2.0), backend=backend) == 0).all()
    assert np.isnan(fastgae.moments([2.0, 2.0]).normalize(np.full(5, 2.0), eps=0.0, backend=backend)).all()
