"""Results in the memory of dropped ones: what users see, and that nothing alive is ever handed out twice."""

import gc
import itertools
import pickle
import re
from functools import partial

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch
from fastgae._support import memory
from support.backends import BACKENDS, ONE_TARGET

pytest.importorskip("fastgae._core", exc_type=ImportError)

STEPS, ENVS = 160, 512  # results of 320 KiB in float32
MIB = 2**20


@pytest.fixture(autouse=True)
def store():
    """An empty store with room for some results."""
    dispatch.recycle()
    before = memory.recycled()["limit"]
    memory.set_limit(0)
    memory.set_limit(64 * MIB)
    yield
    memory.set_limit(before)


def rollout(steps=STEPS, envs=ENVS, dtype=np.float32):
    rewards = np.arange(steps * envs, dtype=dtype).reshape(steps, envs) % 7
    return rewards, np.ones((steps + 1, envs), dtype), np.zeros((steps, envs), bool)


def addresses(results):
    return {array.__array_interface__["data"][0] for array in results}


def counted(function):
    """How many hits and misses a function makes."""
    before = memory.recycled()
    function()
    after = memory.recycled()
    return after["hits"] - before["hits"], after["misses"] - before["misses"]


CALLS = {
    "plain": lambda r, v, d: partial(fastgae.gae, r, v, d),
    "env-major": lambda r, v, d: partial(fastgae.gae, r.T.copy(), v.T.copy(), d.T.copy(), time_axis=1),
    "strided": lambda r, v, d: partial(fastgae.gae, r[::-1, ::-1], v[::-1, ::-1], d[::-1, ::-1]),
    "mask": lambda r, v, d: partial(fastgae.gae, r, v, d, mask=~d),
    "normalize": lambda r, v, d: partial(fastgae.gae, r, v, d, normalize="global"),
    "td_lambda": lambda r, v, d: partial(fastgae.td_lambda, r, v, d),
    # Along axis 1, where another test compiles Numba's kernel.
    "reverse_scan": lambda r, v, d: partial(fastgae.reverse_scan, r, 0.5, time_axis=1),
    "gae_packed": lambda r, v, d: partial(fastgae.gae_packed, r.ravel(), v[:-1].ravel(), [0, 5, r.size], gamma=0.9),
    "vtrace": lambda r, v, d: partial(fastgae.vtrace, r, v, d, ratios=v[:-1], gamma=np.full((len(r), 1), 0.9)),
    "normalize alone": lambda r, v, d: partial(fastgae.normalize, r),
}


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_every_call_recycles(backend):
    for name, made in CALLS.items():
        call = partial(made(*rollout()), backend=backend)
        call()
        hits, misses = counted(call)
        assert (hits > 0, misses) == (True, 0), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_out_and_small_results_are_not_the_stores_business(backend):
    given = rollout()
    out = np.empty((STEPS, ENVS), np.float32), np.empty((STEPS, ENVS), np.float32)
    assert counted(lambda: fastgae.gae(*given, out=out, backend=backend)) == (0, 0)
    least = fastgae._core.least_recycled
    few = rollout(1, least // 4 - 1)
    assert counted(lambda: fastgae.gae(*few, backend=backend)) == (0, 0)
    enough = rollout(1, least // 4)
    assert counted(lambda: fastgae.gae(*enough, backend=backend)) == (0, 2)


def test_the_arrays_are_ordinary():
    array, returns = fastgae.gae(*rollout())
    for each in (array, returns):
        assert each.flags.writeable
        assert each.flags.aligned
        assert each.ctypes.data % 64 == 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), array)
    # Other arrays do not come from the store.
    assert counted(lambda: [np.empty(array.shape), array.copy(), array + 1]) == (0, 0)


def test_new_memory_has_the_order_of_axes_that_numpy_chooses():
    for axes in itertools.permutations(range(3)):
        array = np.zeros((30, 40, 50)).transpose(axes)
        for like in (array, array[::-1], array[:, ::2], np.broadcast_to(array[:1], array.shape)):
            new = memory.empty_like(like)
            assert (new.shape, new.strides, new.dtype) == (like.shape, np.empty_like(like).strides, like.dtype)
            assert new.flags.writeable


def test_a_view_outlives_its_base():
    given = rollout()
    kept = fastgae.gae(*given).advantages[3:, ::2]
    expected = kept.copy()
    for factor in range(5):
        fastgae.gae(given[0] * factor, *given[1:])
    np.testing.assert_array_equal(kept, expected)


def test_an_array_in_a_cycle():
    class Node:
        pass

    given = rollout()
    node = Node()
    node.itself, node.results = node, fastgae.gae(*given)
    node.views = [array[1:] for array in node.results]
    places = addresses(node.results)
    del node
    other = fastgae.gae(*given)
    assert not addresses(other) & places
    gc.collect()
    assert addresses(fastgae.gae(*given)) == places


@pytest.mark.parametrize("limit", [MIB, 8 * MIB])
def test_the_limit_holds(limit):
    memory.set_limit(limit)
    for steps in (600, 150, 300, 4000, 90):
        kept = [fastgae.gae(*rollout(steps)) for _ in range(4)]
        del kept
        assert memory.recycled()["held"] <= limit
    assert memory.recycled()["held"] > 0
    memory.set_limit(0)
    assert memory.recycled()["held"] == 0
    fastgae.gae(*rollout())
    assert memory.recycled()["held"] == 0
    assert counted(lambda: fastgae.gae(*rollout())) == (0, 0)


def test_blocks_are_few():
    """Looking for one must take no time to speak of."""
    kept = [fastgae.gae(*rollout()) for _ in range(60)]
    size = kept[0][0].nbytes
    memory.set_limit(200 * size)
    del kept
    assert memory.recycled()["held"] == 64 * size


def test_sizes_that_differ_a_little_share_memory():
    """Packed sequences seldom have the same total twice."""
    numbers = np.ones(100_000, np.float32)
    fastgae.reverse_scan(numbers, 0.5)
    assert counted(lambda: fastgae.reverse_scan(numbers[1000:], 0.5)) == (1, 0)
    assert counted(lambda: fastgae.reverse_scan(numbers[30_000:], 0.5)) == (0, 1)


def test_limits(monkeypatch):
    given = {"0": 0, "0MB": 0, "1B": 1, "256 MiB": 256 * MIB, "3k": 3 * 2**10, "2GB": 2 * 2**30, " 1t ": 2**40}
    for text, limit in {**given, "9" * 30 + "G": 2**63 - 1}.items():
        assert memory.limit_from("FASTGAE_RECYCLE", text) == limit, text
    for text in ("1", "256", "-1MB", "MB", "1.5GB", "lots", "1PB", "1MBB", "٣MB", "1 M B"):
        with pytest.raises(ValueError, match=rf"^FASTGAE_RECYCLE={re.escape(repr(text))} is not an amount of memory"):
            memory.limit_from("FASTGAE_RECYCLE", text)
    for amount, limit in ((2**28, 2**24), (2**40, 2**30)):
        monkeypatch.setattr(memory, "usable_memory", lambda amount=amount: amount)
        assert memory.limit_from("FASTGAE_RECYCLE", None) == limit
    monkeypatch.undo()
    assert 0 < memory.usable_memory() < 2**60
