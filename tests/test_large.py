"""Rollouts past the thresholds of csrc/tuning.hpp: results are streamed, rows are cut, and threads are started."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import WITH_KERNELS, needs_cpp
from support.cases import assert_same_bits, env_major

WIDE, LONG, ONE_ROW, BY_THREADS = (551, 4099), (70_001, 33), (3, 33_003), (901, 4099)
OPTIONS = {"plain": (), "many": ("truncated", "final_values", "mask", "gamma"), "normalize": ("normalize",)}


@functools.lru_cache(maxsize=1)  # the same numbers for all options of a size
def arrays_of(size, dtype):
    rng = np.random.default_rng(size)
    rewards, values = rng.normal(size=(2, *size)).astype(dtype)
    plain = {"rewards": rewards, "values": values, "terminated": rng.random(size) < 0.1, "last_values": values[0]}
    more = {
        "truncated": rng.random(size) < 0.1,
        "final_values": -values,
        "mask": rng.random(size) < 0.7,
        "gamma": rng.random((1, size[1])),
        "normalize": "global",
    }
    return plain, more


def call_of(size, dtype="f4", names=()):
    plain, more = arrays_of(size, dtype)
    return plain | {name: more[name] for name in names}


def padded(call):
    """Return the call with rows that do not follow each other in memory."""
    wide = {name: np.pad(given, ((0, 0), (0, 3))) for name, given in call.items() if np.ndim(given) == 2}
    return call | {name: given[:, :-3] for name, given in wide.items()}


LAYOUTS = {"time first": dict, "time last": env_major, "padded": padded}


@pytest.mark.parametrize(
    ("size", "dtype", "options"),
    [*product((WIDE, LONG, ONE_ROW, BY_THREADS), ("f4",), OPTIONS), (LONG, "f8", "many")],
    ids=str,
)
def test_any_layout_place_and_number_of_threads(size, dtype, options):
    """Stores past the caches come in whole lines; both outputs begin alike in them, each elsewhere, or alone."""
    call = call_of(size, dtype, OPTIONS[options])
    expected = fastgae.gae(**call, backend="numpy")
    how = [(None, (0, 0)), (1, (3, 3)), (2, (1, 2)), (7, (None, 7)), (1000, (5, None))]
    # Numba would compile two more kernels for float64, and random calls in .ci/run ask for them.
    backends = [name for name in WITH_KERNELS if (dtype, name) != ("f8", "numba")]
    count = call["rewards"].size
    blocks = [np.empty(count + 16, dtype) for _ in expected]
    for turn, (layout, laid) in enumerate(LAYOUTS.items()):
        given = laid(call)
        shape = given["rewards"].shape
        right = [np.ascontiguousarray(array.T) if layout == "time last" else array for array in expected]
        for number, backend in enumerate(backends):
            every = options == "plain" and layout != "padded"  # in two turns, one for each layout
            some = how[(number + turn) % 2 :: 2] if every else how[number % 3 : number % 3 + 1]
            for num_threads, starts in some:
                places = zip(blocks, starts, strict=True)
                out = tuple(at if at is None else block[at : at + count].reshape(shape) for block, at in places)
                for block in blocks:
                    block.fill(np.nan)
                fastgae.gae(**given, out=out, backend=backend, num_threads=num_threads)
                for array, block, start, numbers in zip(out, blocks, starts, right, strict=True):
                    if array is not None:
                        what = f"{backend}, {layout}, {num_threads} threads, {starts}"
                        assert_same_bits(array, numbers, what)
                        outside = [*block[:start], *block[start + count :]]
                        assert np.isnan(outside).all(), f"{what}: written outside of out"


EVERY_WAY = """
import numpy as np
import fastgae
from fastgae import _core

rng = np.random.default_rng(0)
for dtype, size, names in (
    ("f4", (551, 4099), ("last_values",)),
    ("f8", (280, 4099), ("last_values",)),
    ("f4", (551, 4099), ("last_values", "mask")),
    ("f4", (9001, 259), ("next_values", "truncated")),
    ("f8", (1031, 1031), ("last_values", "time_axis")),
):
    rewards, values = rng.normal(size=(2, *size)).astype(dtype)
    flags = rng.random(size) < 0.1
    more = {"time_axis": 1, "last_values": values[0], "next_values": -values, "mask": ~flags, "truncated": flags[::-1]}
    call = {"rewards": rewards, "values": values, "terminated": flags, **{name: more[name] for name in names}}
    expected = fastgae.gae(**call, backend="numpy")
    out = [np.empty(rewards.size + 16, dtype)[start:][:rewards.size].reshape(size) for start in (3, 6)]
    for way in range(4):
        _core.prefetch_into(way)
        for target in _core.compiled_targets:
            if not _core.supports(target):
                continue
            fastgae.gae(**call, out=tuple(out), backend=f"cpp:{target}", num_threads=1)
            for array, right in zip(out, expected):
                assert array.tobytes() == right.tobytes(), (dtype, names, way, target)
print("done")
"""


@needs_cpp
def test_every_way_to_wait_for_memory_gives_the_same_bits(python):
    """In a process of its own, because the ways that it takes would be kept."""
    assert python(EVERY_WAY) == "done"


@pytest.mark.parametrize("backend", WITH_KERNELS)
def test_several_python_threads_at_once(backend):
    """Each with its own number of threads; none may see another's memory or settings."""
    call, counts = call_of(WIDE), (1, 2, 3, 7)
    expected, together = fastgae.gae(**call, backend=backend), threading.Barrier(len(counts))

    def work(num_threads):
        together.wait()
        for _ in range(3):
            got = fastgae.gae(**call, backend=backend, num_threads=num_threads)
            assert_same_bits(got, expected)

    with ThreadPoolExecutor(len(counts)) as pool:
        list(pool.map(work, counts))  # which raises what a thread has raised
