"""The rollouts that the exactness tests run on: their sizes, flags and bootstraps. Layouts are in layouts.py."""

import functools
from dataclasses import dataclass, fields, replace

import numpy as np

# (T, N) around the edges of lanes, tiles and unrolled loops. A kernel with a new threshold adds sizes around it.
SIZES = [
    *[(1, n) for n in (1, 2, 3, 8, 17, 65)],
    *[(2, n) for n in (1, 7, 16, 33)],
    *[(t, 1) for t in (3, 9, 31, 64, 130)],
    *[(3, 3), (7, 2), (8, 8), (9, 15), (15, 9), (16, 16), (17, 31), (31, 17), (33, 7), (33, 64)],
    *[(63, 65), (64, 63), (65, 33), (97, 97), (130, 130), (5, 257), (257, 5)],
    *[(66, 2), (68, 3), (69, 7), (129, 12), (64, 15), (137, 31)],  # narrow rows, and what is left of their last batch
    *[(7, 40), (8, 40), (9, 40), (24, 40)],  # env-major ends that other rows follow in memory
]
# A few sizes, for tests that run in many other combinations.
FEW_SIZES = [(1, 1), (1, 17), (2, 7), (3, 8), (9, 1), (17, 33), (16, 64), (65, 9)]
# Past the thresholds of csrc/tuning.hpp: results are streamed and threads spawn (wide, and long); rows are cut.
LARGE_SIZES = [(551, 4099), (70_001, 33), (3, 33_003)]
# Large enough for seven threads of cpp, and for all threads of numba, which need more work each.
THREADS_SIZE = (901, 4099)

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

    def envs(self, index):
        """Return the case with only these envs."""
        return self.mapped(lambda name, a: np.ascontiguousarray(a[..., index]))


def numbers(rng, shape, dtype):
    """Return normal numbers, some of them replaced by zeros of both signs."""
    array = rng.normal(size=shape)
    array = np.where(rng.random(shape) < 0.1, np.copysign(0.0, array), array)
    return array.astype(dtype)


def episode_ends(rng, shape, flags):
    ends = np.zeros(shape, bool)
    if flags == "all":
        ends[:] = True
    elif flags == "first_row":
        ends[:1] = True
    elif flags == "last_row":
        ends[-1:] = True
    elif flags == "random":
        ends[:] = rng.random(shape) < 0.3
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


def cases_of(size, dtype):
    """Yield cases with every kind of flags and every bootstrap, in pairs that depend on the size."""
    for number, flags in enumerate(FLAGS):
        yield make_case(size, dtype, flags, BOOTSTRAPS[(number + sum(size)) % len(BOOTSTRAPS)])


def assert_same_bits(actual, expected, what=""):
    """Assert the same shape, dtype and bits. NaN equals NaN, because its sign and payload are not promised."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    unsigned = f"u{actual.dtype.itemsize}"
    same = np.ascontiguousarray(actual).view(unsigned) == np.ascontiguousarray(expected).view(unsigned)
    if not same.all():
        same |= np.isnan(actual) & np.isnan(expected)
    if not same.all():
        index = tuple(np.argwhere(~same)[0])
        raise AssertionError(
            f"{what} {np.count_nonzero(~same)} of {same.size} numbers differ, first at {tuple(map(int, index))}: "
            f"{actual[index]!r}, expected {expected[index]!r}"
        )
