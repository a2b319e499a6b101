"""Rollouts of odd shapes, strides and alignments, of about one size: each against those of a similar shape.

A kernel that is fast on handy sizes may fall off a cliff beside them. The arrays are cut out of one block for each
role, so that a shape costs no new memory, and its answer is checked against the baseline target.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

import fastgae
from speed.caches import beyond_caches, last_level
from speed.rollouts import PAGE, Array
from speed.timing import Clock, in_turn

from .findings import Finding

SHAPES, SEED = 50, 13
NEIGHBOURS = 4
ALLOWED = 1.5  # times the median of the neighbours, for each step
SECONDS = 0.1  # for each shape; they take turns
BYTES_PER_STEP = 17
IN_CACHE_STEPS = 128 * 1024
FEWEST_STEPS = 16  # along either axis of the largest rollouts; the arrays get no flatter than that


class Shape(NamedTuple):
    """A rollout whose rows lie ``padding`` numbers apart and begin ``offset`` numbers after the start of a page."""

    steps: int
    envs: int
    env_major: bool
    padding: int
    offset: int

    def __str__(self) -> str:
        layout = "env-major" if self.env_major else "time-major"
        return (
            f"{self.steps}×{self.envs} {layout}, {self.padding} numbers between rows, {self.offset} after a page begins"
        )

    @property
    def room(self) -> int:
        """Return how many numbers the rollout covers, its paddings and its offset included."""
        rows, row = (self.envs, self.steps) if self.env_major else (self.steps, self.envs)
        return rows * (row + self.padding) + self.offset

    def cut(self, block: Array) -> Array:
        rows, row = (self.envs, self.steps) if self.env_major else (self.steps, self.envs)
        return block[self.offset : self.room].reshape(rows, row + self.padding)[:, :row]


def drawn(steps: int, env_major: bool) -> list[Shape]:
    """Draw shapes of about so many steps in all, from few envs to few steps; the logarithm of N is uniform."""
    rng = np.random.default_rng(SEED)
    shapes = []
    for _ in range(SHAPES):
        envs = round(float(np.exp(rng.uniform(0, np.log(steps / FEWEST_STEPS)))))
        row = steps // envs if env_major else envs
        shapes.append(Shape(steps // envs, envs, env_major, int(rng.integers(0, row // 8 + 1)), int(rng.integers(64))))
    return sorted(shapes, key=lambda shape: shape.envs)


def against_neighbours(times: Sequence[float]) -> list[float]:
    """Divide each time by the median of its neighbours, two on either side where there are as many."""
    ratios = []
    for i, seconds in enumerate(times):
        first = min(max(0, i - NEIGHBOURS // 2), max(0, len(times) - NEIGHBOURS - 1))
        near = [*times[first:i], *times[i + 1 : first + NEIGHBOURS + 1]]
        ratios.append(seconds / statistics.median(near))
    return ratios


def worst_of_random(backend: str) -> list[Finding]:
    """Return the worst shape of each layout, in cache and from memory, with its goal."""
    sizes = {"in cache": in_cache(), "from memory": beyond_caches(4) // BYTES_PER_STEP}
    return [
        worst(backend, place, drawn(steps, env_major)) for place, steps in sizes.items() for env_major in (False, True)
    ]


def in_cache() -> int:
    """Return how many steps fit into the last-level cache twice, and no more than the rows in cache have."""
    return min(IN_CACHE_STEPS, (last_level() or 2**30) // (2 * BYTES_PER_STEP))


def worst(backend: str, place: str, shapes: Sequence[Shape]) -> Finding:
    rng = np.random.default_rng(SEED)
    room = 1024 + max(shape.room for shape in shapes)
    rewards, values = (paged(rng.standard_normal(room, np.float32)) for _ in range(2))
    terminated = paged(rng.random(room, np.float32) < 0.01)
    advantages, returns, right = (paged(np.zeros(room, np.float32)) for _ in range(3))
    clocks = []
    for shape in shapes:
        given: dict[str, Any] = {
            "last_values": values[: shape.envs],
            "time_axis": int(shape.env_major),
            "num_threads": 1,
        }
        arrays = [shape.cut(block) for block in (rewards, values, terminated)]
        outputs = shape.cut(advantages), shape.cut(returns)
        call = partial(fastgae.gae, *arrays, **given, out=outputs, backend=backend)
        expected = fastgae.gae(*arrays, **given, out=(shape.cut(right), None), backend="cpp:baseline")
        assert np.array_equal(call().advantages, expected.advantages), f"{shape}: wrong"
        clocks.append((Clock(Timer(call)),))
    samples = in_turn(clocks, [SECONDS] * len(clocks))
    times = [
        min(seconds for (seconds,) in found) / (shape.steps * shape.envs)
        for shape, found in zip(shapes, samples, strict=True)
    ]
    ratios = against_neighbours(times)
    ratio, seconds, shape = max(zip(ratios, times, shapes, strict=True))
    return Finding(
        f"{backend}, {SHAPES} random shapes {place}, the worst: {shape}",
        f"{seconds * 1e9:.2f} ns a step, {ratio:.2f} × its neighbours",
        f"at most {ALLOWED:g} ×",
        ratio <= ALLOWED,
    )


def paged(array: Array) -> Array:
    """Return a copy that begins at a page."""
    block = np.empty(array.nbytes + PAGE, np.uint8)
    copy = block[-block.ctypes.data % PAGE :][: array.nbytes].view(array.dtype)
    copy[:] = array
    return copy
