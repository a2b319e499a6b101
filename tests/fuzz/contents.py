"""The elements of arrays."""

from typing import Any

import numpy as np


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return small integers, normal numbers, all magnitudes, what is never forgotten, or some that are not finite."""
    style, dtype = rng.integers(6), np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    if style == 0:
        return rng.integers(-3, 4, shape).astype(dtype)
    array = rng.normal(size=shape)
    with np.errstate(all="ignore"):
        if style == 2:
            limits = np.finfo(dtype)
            array *= 2.0 ** rng.integers(limits.minexp - limits.nmant, limits.maxexp, shape)
        if style == 3:
            array *= 10.0 ** rng.integers(-6, 6, shape)
        array = array.astype(dtype)
    if style == 5:
        return never_forgotten(rng, array)
    share = rng.random(shape)
    array[share < 0.05] = 0.0
    array[share > 0.95] = -0.0
    if style == 4 and rng.random() < 0.3:
        odd = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324])
        with np.errstate(all="ignore"):
            array = np.where(rng.random(shape) < 0.02, rng.choice(odd, shape), array).astype(dtype)
    return array


def never_forgotten(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return numbers that a recursion with rounding does not forget: subnormal ones, which no decay makes smaller, a
    few spikes among small numbers, zeros, or numbers that are all the same.
    """
    limits, kind = np.finfo(array.dtype), rng.integers(4)
    if kind == 0:
        return (np.sign(array) * limits.smallest_subnormal * rng.integers(0, 4, array.shape)).astype(array.dtype)
    if kind == 1:
        spikes = rng.random(array.shape) < 2 / max(array.size, 1)
        return np.where(spikes, np.copysign(limits.max / 1e3, array), array * limits.eps).astype(array.dtype)
    return np.full_like(array, (-0.0, 1.0)[kind - 2])


def poison(rng: np.random.Generator, array: np.ndarray, unread: np.ndarray) -> None:
    """Put NaN or infinity, which would spread into the results, into elements that must not be read."""
    if rng.random() < 0.6 and array.dtype.kind == "f":
        array[unread] = rng.choice((np.nan, np.inf, -np.inf))


def truths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return bools, of which none, all or some are True."""
    density = rng.choice((0.0, 0.02, 0.2, 0.5, 0.8, 0.98, 1.0))
    return rng.random(shape) < density


def answers(rng: np.random.Generator, shape: tuple[int, ...], time: int) -> np.ndarray:
    """Return bools that are True from one step of each env to another one, as after a prompt and before padding."""
    steps = np.arange(shape[time]).reshape(-1, *(1,) * (len(shape) - time - 1))
    limits = rng.integers(0, shape[time] + 1, (2, *shape[:time], 1, *shape[time + 1 :]))
    padded = rng.random() < 0.7
    return (steps >= (limits.min(0) if padded else limits[0])) & (steps < (limits.max(0) if padded else shape[time]))


def flags(rng: np.random.Generator, truth: np.ndarray, other_dtypes: bool) -> np.ndarray:
    """Return the same flags as bools, as another dtype, or as bools whose True is any byte but 0."""
    style = rng.integers(8)
    if style == 2 and other_dtypes:
        return truth.astype(rng.choice(("u1", "i8", "f4", "f8", ">i2")))
    if style == 1:
        odd = rng.integers(1, 256, truth.shape).astype(np.uint8)
        return np.where(truth, odd, 0).astype(np.uint8).view(bool)
    return truth


def broadcast(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return the array, or, in one of twenty cases, a view that repeats its first element along one axis."""
    if array.ndim == 0 or rng.random() > 0.05:
        return array
    axis = rng.integers(array.ndim)
    return np.broadcast_to(array.take([0], axis) if array.shape[axis] else array, array.shape)
