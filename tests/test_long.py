"""Long trajectories, which a backend may cut into pieces that run side by side: the bits stay the sequential ones.

A piece can begin before A of its successor is known, for the rounded recursion soon forgets where it began. These are
the numbers with which it does not.
"""

import numpy as np
import pytest

from support.backends import WITH_KERNELS
from support.cases import BOOTSTRAPS, make_case

pytestmark = [
    pytest.mark.parametrize("backend", WITH_KERNELS, indirect=True),
    pytest.mark.parametrize("layout", ["env_major", "vector"], indirect=True),
]


def spikes(rng, a):
    """A number so large that its trace outlives everything."""
    huge = np.finfo(a.dtype).max / 1e3
    return np.where(rng.random(a.shape) < 2 / len(a), np.copysign(huge, a), a * 1e-20).astype(a.dtype)


def denormals(rng, a):
    """What gamma lambda does not shrink: rounding holds the smallest numbers where they are."""
    return (np.sign(a) * np.finfo(a.dtype).smallest_subnormal * rng.integers(0, 4, a.shape)).astype(a.dtype)


def minus_zeros(rng, a):
    return -np.zeros_like(a)


def not_numbers(rng, a):
    return np.where(rng.random(a.shape) < 3 / len(a), rng.choice([np.nan, np.inf, -np.inf], a.shape), a).astype(a.dtype)


def constant(rng, a):
    return np.ones_like(a)


def big_steps(rng, a):
    """Large against small in turn."""
    return (a * 10.0 ** rng.integers(-18, 18, a.shape)).astype(a.dtype)


HOSTILE = [spikes, denormals, minus_zeros, not_numbers, constant, big_steps]
COEFFICIENTS = [(0.99, 0.95), (1.0, 1.0), (0.999, 0.999), (0.99, 0.0), (0.5, 0.5)]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("size", [(2003, 1), (1601, 3)], ids=str)
def test_numbers_that_are_not_forgotten(variant, make, size):
    rng = np.random.default_rng(11)
    for number, (gamma, gae_lambda) in enumerate(COEFFICIENTS[:2]):
        case = make_case(
            variant.layout.size(size), variant.dtype, "none", BOOTSTRAPS[number % 5], gamma=gamma, gae_lambda=gae_lambda
        )
        with np.errstate(all="ignore"):
            case = case.mapped(lambda name, a: a if a.dtype == bool else make(rng, a))
        variant.check(case)
        out = np.full(variant.layout.shape(case.rewards).shape, np.nan, variant.dtype)
        (_, returns), _ = variant.run(case)
        (_, alone), _ = variant.run(case, out=(None, out))
        np.testing.assert_array_equal(alone, returns)
