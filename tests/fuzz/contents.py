"""The elements of arrays and their layouts in memory, decided by ``Choices``."""

from typing import Any

import numpy as np

from .choices import Choices
from .memory import Place

# Lengths around the sizes of lanes, tiles, cache lines and blocks of steps.
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 66, 97, 127, 128, 129, 130, 200, 257)
LONG = (512, 513, 777, 1023, 1025, 2047, 4096, 5000, 9001, 20011)


def rng_of(choose: Choices) -> np.random.Generator:
    return np.random.default_rng(choose.below(1 << 32))


def length(choose: Choices) -> int:
    """Return a number of steps or environments."""
    if choose.chance(2):
        return 0
    return choose.pick(EDGES) if choose.chance(60) else 1 + choose.below(20)


def numbers(choose: Choices, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return small integers, normal numbers, numbers of all magnitudes, or numbers of which some are not finite."""
    rng, style = rng_of(choose), choose.below(5)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    if style == 0:
        return rng.integers(-3, 4, shape).astype(dtype)
    array = rng.normal(size=shape)
    with np.errstate(all="ignore"):
        if style == 2:
            array *= 10.0 ** rng.integers(-46, 38, shape)
        if style == 3:
            array *= 10.0 ** rng.integers(-6, 6, shape)
        array = array.astype(dtype)
    array[rng.random(shape) < 0.05] = 0.0
    array[rng.random(shape) < 0.05] = -0.0
    if style == 4 and choose.chance(30):
        odd = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324])
        with np.errstate(all="ignore"):
            array = np.where(rng.random(shape) < 0.02, rng.choice(odd, shape), array).astype(dtype)
    return array


def poison(choose: Choices, array: np.ndarray, unread: np.ndarray) -> None:
    """Put NaN or infinity, which would spread into the results, into elements that must not be read."""
    if choose.chance(60) and array.dtype.kind == "f":
        array[unread] = choose.pick((np.nan, np.inf, -np.inf))


def truths(choose: Choices, shape: tuple[int, ...]) -> np.ndarray:
    """Return bools, of which none, all or some are True."""
    density = choose.pick((0.0, 0.02, 0.2, 0.5, 0.8, 0.98, 1.0))
    return rng_of(choose).random(shape) < density


def flags(choose: Choices, truth: np.ndarray) -> np.ndarray:
    """Return the same flags as another dtype, or as bools whose True is any byte but 0."""
    style = choose.below(8)
    if style == 2 and choose.order is None:
        return truth.astype(choose.pick((np.uint8, np.int64, np.float32, np.float64, ">i2")))
    if style == 1:
        odd = rng_of(choose).integers(1, 256, truth.shape).astype(np.uint8)
        return np.where(truth, odd, 0).astype(np.uint8).view(bool)
    return truth.copy()


def place(choose: Choices, ndim: int) -> Place:
    """Return a place in memory for an array with so many axes, most often as NumPy would make it."""
    axes = tuple(range(ndim))
    at_end = not choose.chance(30)
    if choose.order is not None or ndim == 0 or not choose.chance(60):
        order = axes[::-1] if choose.order == "F" else axes
        return Place(order, (0,) * ndim, (False,) * ndim, 0, at_end)
    if choose.chance(25):  # backwards, and nothing else
        return Place(axes, (0,) * ndim, tuple(choose.chance(60) for _ in axes), 0, at_end)
    shuffled = list(axes)
    if choose.chance(50):
        shuffled.reverse()
    if choose.chance(20):
        shuffled.insert(0, shuffled.pop(choose.below(ndim)))
    gaps = [choose.pick((0, 0, 0, 0, 1, 3, 16)) for _ in axes]
    backwards = [choose.chance(15) for _ in axes]
    shift = choose.pick((0, 0, 0, 0, 0, 1, 2, 4))
    return Place(tuple(shuffled), tuple(gaps), tuple(backwards), shift, at_end)


def broadcast(choose: Choices, array: np.ndarray) -> np.ndarray:
    """Return the array, or a view that repeats its first element along one axis."""
    if array.ndim == 0 or not choose.chance(5):
        return array
    axis = choose.below(array.ndim)
    return np.broadcast_to(array.take([0], axis) if array.shape[axis] else array, array.shape)
