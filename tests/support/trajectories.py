"""Random steps for the tests of fastgae.compat, and how closely results have to agree."""

from typing import NamedTuple

import numpy as np

COEFFICIENTS = [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.97, 0.8)]
SIZES = [(1, 1), (7, 3), (64, 5), (33, 16)]


class Steps(NamedTuple):
    """(T, N) arrays. Of the steps that end an episode, some terminate and some are truncated."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray  # V before any reset: values of the next row where the episode goes on
    terminated: np.ndarray
    truncated: np.ndarray
    ratios: np.ndarray

    @property
    def done(self):
        return self.terminated | self.truncated

    @property
    def last_values(self):
        return self.next_values[-1]

    @property
    def shifted(self):
        """Return flags: observation t is the first of an episode. float32, as peers store them."""
        return np.vstack([np.zeros_like(self.done[:1]), self.done[:-1]]).astype(np.float32)


def steps(size, dtype=np.float32, seed=0):
    rng = np.random.default_rng([*size, seed])
    values = rng.normal(size=size)
    ends, limit = rng.random(size) < 0.25, rng.random(size) < 0.5
    following = np.where(ends, rng.normal(size=size), np.vstack([values[1:], rng.normal(size=size[1:])[None]]))
    return Steps(
        rng.normal(size=size).astype(dtype),
        values.astype(dtype),
        following.astype(dtype),
        ends & ~limit,
        ends & limit,
        np.exp(rng.normal(size=size) / 2).astype(dtype),
    )


def assert_close(actual, expected, tolerance=1e-5):
    """Assert the same shape and dtype, and differences that are small beside the largest number expected."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()
