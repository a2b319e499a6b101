"""out: every layout, every overlap, and nothing written but what was asked for."""

import numpy as np
import pytest

import fastgae
from support.backends import WITH_KERNELS
from support.cases import LARGE_SIZES, assert_same_bits, make_case
from support.exactness import reference
from support.layouts import poisoned


def test_out_interleaved(backend, dtype):
    """Both outputs in one block, as fields side by side, and as rows in turn."""
    case = make_case((17, 33), dtype)
    for block in (np.empty((17, 33, 2), dtype), np.empty((17, 2, 33), dtype).swapaxes(1, 2)):
        fastgae.gae(**case.arguments(), out=(block[..., 0], block[..., 1]), backend=backend)
        for i, right in enumerate(reference(case)):
            assert_same_bits(block[..., i], right)


@pytest.mark.parametrize("size", LARGE_SIZES[:2], ids=str)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_large_out_at_any_place_of_a_cache_line(size, time_axis, large):
    """Stores past the caches come in whole lines; both outputs begin alike, each elsewhere, or alone."""
    dtype = np.dtype(np.float32)
    case, expected = large(size, dtype)
    if time_axis == 1:
        case, expected = case.mapped(lambda _, a: a.T.copy()), [a.T for a in expected]
    shape, count = case.rewards.shape, case.rewards.size
    for starts in ((0, 0), (3, 3), (1, 2), (5, None), (None, 7)):
        memories = [None if start is None else poisoned(count + 16, dtype) for start in starts]
        out = tuple(
            None if memory is None else memory[start : start + count].reshape(shape)
            for memory, start in zip(memories, starts, strict=True)
        )
        for backend in WITH_KERNELS:
            fastgae.gae(**case.arguments(), out=out, time_axis=time_axis, backend=backend)
            for array, memory, right in zip(out, memories, expected, strict=True):
                if array is not None:
                    assert_same_bits(array, right, f"{backend}, starts {starts}")
                    array[...] = np.nan
                    assert np.isnan([*memory[:16], *memory[-16:]]).all(), "written outside of out"


def test_out_may_overlap_the_flags(backend):
    case = make_case((16, 32), np.dtype(np.float32))
    expected = reference(case)
    memory = np.zeros((16, 32), np.float32)
    for name in ("terminated", "truncated"):
        flags = memory.view(bool).reshape(16, 128)[:, :32]
        flags[...] = getattr(case, name)
        fastgae.gae(**{**case.arguments(), name: flags}, out=(memory, None), backend=backend)
        assert_same_bits(memory, expected.advantages, name)


def test_results_are_the_callers_own(backend):
    """Fresh, writable memory that shares nothing with the inputs, even read-only ones, or with the other result."""
    case = make_case((9, 33), np.dtype(np.float32))
    case = case.mapped(lambda _, a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape))
    got = fastgae.gae(**case.arguments(), backend=backend)
    for array in got:
        assert array.flags.writeable
        assert type(array) is np.ndarray
        assert not any(np.shares_memory(array, a) for a in case.arguments().values() if isinstance(a, np.ndarray))
    assert not np.shares_memory(*got)


@pytest.mark.parametrize(("shape", "order"), [((1, 7), "C"), ((5, 1), "F")], ids=["one env", "one step"])
def test_broadcast_rewards_with_time_last_give_results_in_their_memory_order(backend, dtype, shape, order):
    rewards = np.broadcast_to(np.ones(shape, dtype), (5, 7))
    values, terminated = np.ones((5, 8), dtype, order), np.zeros((5, 7), bool, order)
    got = fastgae.gae(rewards, values, terminated, time_axis=1, backend=backend)
    assert [array.strides for array in got] == [np.empty_like(rewards).strides] * 2


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_new_result_for_broadcast_rewards_is_as_empty_like_makes_it(backend, axis, order):
    shape = (16, 18)
    rewards = np.broadcast_to(np.ones((1, 18) if axis == 0 else (16, 1)), shape)
    values, ended = np.ones(shape, order=order), np.zeros(shape, bool, order=order)
    returns = fastgae.td_lambda(rewards, values, ended, next_values=values, backend=backend)
    assert returns.strides == np.empty_like(rewards).strides
