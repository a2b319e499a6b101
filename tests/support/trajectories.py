"""Random steps for the tests of fastgae.compat."""

from typing import NamedTuple

import numpy as np

COEFFICIENTS = [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.97, 0.8)]


class Steps(NamedTuple):
    """(T, N) arrays. Of the steps that end an episode, some terminate and some are truncated."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray  # V before any reset: values of the next row where the episode goes on
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def done(self):
        return self.terminated | self.truncated


def steps(size):
    rng = np.random.default_rng([*size, 0])
    values = rng.normal(size=size)
    ends, limit = rng.random(size) < 0.25, rng.random(size) < 0.5
    following = np.where(ends, rng.normal(size=size), np.vstack([values[1:], rng.normal(size=size[1:])[None]]))
    numbers = (each.astype(np.float32) for each in (rng.normal(size=size), values, following))
    return Steps(*numbers, ends & ~limit, ends & limit)
