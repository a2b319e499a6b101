"""Rollouts with every kind of flags and of bootstraps."""

import functools
from dataclasses import dataclass, fields, replace

import numpy as np

FLAGS = ("none", "all", "first_row", "last_row", "random")
# Where the value of the next state comes from. The last three allow truncated steps.
BOOTSTRAPS = ("longer_values", "last_values", "next_values", "final_dense", "final_sparse")


@dataclass(frozen=True)
class Case:
    """A (T, N) rollout with plain arrays, as keyword arguments of fastgae.gae; final_values like rewards."""

    rewards: np.ndarray
    values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray | None = None
    last_values: np.ndarray | None = None
    next_values: np.ndarray | None = None
    final_values: np.ndarray | None = None
    gamma: float = 0.99
    gae_lambda: float = 0.95
    sparse: bool = False  # hand final_values over as one number per truncated step

    def arguments(self):
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "sparse"}
        return {name: value for name, value in named.items() if value is not None}

    def mapped(self, function):
        """Return the case with function(name, array) in place of every array."""
        arrays = {name: a for name, a in self.arguments().items() if isinstance(a, np.ndarray)}
        return replace(self, **{name: function(name, a) for name, a in arrays.items()})


def numbers(rng, shape, dtype):
    """Return normal numbers, some of them replaced by zeros of both signs."""
    array = rng.normal(size=shape)
    array = np.where(rng.random(shape) < 0.1, np.copysign(0.0, array), array)
    return array.astype(dtype)


def episode_ends(rng, shape, flags):
    if flags == "random":
        return rng.random(shape) < 0.3
    ends = np.zeros(shape, bool)
    ends[{"none": slice(0), "all": slice(None), "first_row": slice(1), "last_row": slice(-1, None)}[flags]] = True
    return ends


def make_case(size, dtype, flags="random", bootstrap="final_dense", seed=0, **settings):
    arrays = {name: array.copy() for name, array in _arrays(tuple(size), dtype, flags, bootstrap, seed).items()}
    return Case(**arrays, sparse=bootstrap == "final_sparse", **settings)


@functools.lru_cache(maxsize=16)  # the same rollouts go through every layout and backend
def _arrays(size, dtype, flags, bootstrap, seed):
    steps, envs = size
    rng = np.random.default_rng([steps, envs, FLAGS.index(flags), BOOTSTRAPS.index(bootstrap), seed])
    ends = episode_ends(rng, size, flags)
    # Of the steps that end an episode, some terminate, some truncate, and some do both.
    kind = rng.integers(3, size=size)
    has_truncated = bootstrap in ("next_values", "final_dense", "final_sparse")
    arrays = {
        "rewards": numbers(rng, size, dtype),
        "values": numbers(rng, (steps + (bootstrap in ("longer_values", "final_sparse")), envs), dtype),
        "terminated": ends & (kind != 1) if has_truncated else ends,
    }
    if has_truncated:
        arrays["truncated"] = ends & (kind != 0)
    if bootstrap in ("last_values", "final_dense"):
        arrays["last_values"] = numbers(rng, envs, dtype)
    if bootstrap == "next_values":
        arrays["next_values"] = numbers(rng, size, dtype)
    if bootstrap in ("final_dense", "final_sparse"):
        arrays["final_values"] = numbers(rng, size, dtype)
    return arrays


def env_major(arguments):
    """Return the arguments of a call with time along the last axis, in memory, too."""
    turned = {name: given.T.copy() if np.ndim(given) == 2 else given for name, given in arguments.items()}
    return {**turned, "time_axis": 1}


def difference(got, expected):
    """Say how the shape, dtype or bits of an array differ, or "". NaN has no sign and payload that are promised."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
    unsigned = f"u{got.itemsize}"
    same = np.ascontiguousarray(got).view(unsigned) == np.ascontiguousarray(expected).view(unsigned)
    if not same.all():
        same |= np.isnan(got) & np.isnan(expected)
    if same.all():
        return ""
    where = tuple(map(int, np.argwhere(~same)[0]))
    count = f"{np.count_nonzero(~same)} of {same.size} differ"
    return f"{count}, first at {where}: {got[where]!r}, expected {expected[where]!r}"


def assert_same_bits(got, expected, what=""):
    """Assert the same shape, dtype and bits, of an array or of each of several."""
    if isinstance(expected, tuple):
        for each, right in zip(got, expected, strict=True):
            assert_same_bits(each, right, what)
        return
    said = difference(np.asarray(got), np.asarray(expected))
    assert not said, f"{what} {said}"
