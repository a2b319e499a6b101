"""out: every layout, every overlap, and nothing written but what was asked for."""

from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET, WITH_KERNELS
from support.cases import FEW_SIZES, LARGE_SIZES, assert_same_bits, make_case
from support.exactness import reference
from support.layouts import poisoned

MEMORIES = {
    "c": (np.s_[:, :], lambda a: a),
    "fortran": (np.s_[:, :], lambda a: np.asfortranarray(a)),
    "padded": (np.s_[1:-1, 2:-1], lambda a: a),
    "padded_fortran": (np.s_[1:-1, 2:-1], lambda a: np.asfortranarray(a)),
    "sliced": (np.s_[1:-1:2, 1:-1:3], lambda a: a),
    "negative_time": (np.s_[::-1, :], lambda a: a),
    "negative_env": (np.s_[:, ::-1], lambda a: a),
    "negative_both": (np.s_[::-2, ::-2], lambda a: np.asfortranarray(a)),
}


def memory_for(name, size, dtype):
    """(block, view of it) with a view of this size; the rest of the block must stay NaN."""
    index, order = MEMORIES[name]
    used = [part.indices(10**6) for part in index]
    lengths = [len(range(*slice_)) for slice_ in used]
    block_shape = [
        next(n for n in range(size[axis], 4 * size[axis] + 8) if len(range(*index[axis].indices(n))) == size[axis])
        for axis in range(2)
    ]
    assert all(lengths)
    block = order(poisoned(block_shape, dtype))
    return block, block[index]


@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("name", MEMORIES)
def test_out_in_any_memory(backend, dtype, name, time_axis):
    for number, size in enumerate([*FEW_SIZES, (33, 65), (64, 16)]):
        case = make_case(size, dtype)
        expected = reference(case)
        if time_axis == 1:
            case, expected = case.mapped(lambda _, a: a.T.copy()), [a.T for a in expected]
        shape = case.rewards.shape
        for wanted in ((True, True), (True, False), (False, True)):
            blocks = [memory_for(name, shape, dtype) if want else (None, None) for want in wanted]
            out = tuple(view for _, view in blocks)
            given = list(out) if number % 2 else out
            got = fastgae.gae(**case.arguments(), out=given, time_axis=time_axis, backend=backend)
            assert got.advantages is out[0]
            assert got.returns is out[1]
            for (block, view), right in zip(blocks, expected, strict=True):
                if view is not None:
                    assert_same_bits(view, right)
                    view[...] = np.nan
                    assert np.isnan(block).all(), "written outside of out"


def test_out_unaligned(backend, dtype):
    case = make_case((17, 33), dtype)
    memory = np.zeros((2, case.rewards.nbytes + 1), np.uint8)
    out = tuple(row[1:].view(dtype).reshape(17, 33) for row in memory)
    fastgae.gae(**case.arguments(), out=out, backend=backend)
    for array, right in zip(out, reference(case), strict=True):
        assert_same_bits(array, right)
    assert not memory[:, 0].any()


def test_out_interleaved(backend, dtype):
    """Both outputs in one block, as fields side by side, and as rows in turn."""
    case = make_case((17, 33), dtype)
    for block in (np.empty((17, 33, 2), dtype), np.empty((17, 2, 33), dtype).swapaxes(1, 2)):
        fastgae.gae(**case.arguments(), out=(block[..., 0], block[..., 1]), backend=backend)
        for i, right in enumerate(reference(case)):
            assert_same_bits(block[..., i], right)


@pytest.mark.parametrize("size", LARGE_SIZES[:2], ids=str)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_large_out_at_any_place_of_a_cache_line(dtype, size, time_axis, large):
    """Stores past the caches come in whole lines; both outputs begin alike, each elsewhere, or alone."""
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


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0,), (2, 0, 3), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("bootstrap", ["longer", "last", "next"])
def test_empty(dtype, shape, bootstrap):
    empty, flags = np.zeros(shape, dtype), np.zeros(shape, bool)
    arguments = {"rewards": empty, "values": empty, "terminated": flags}
    if bootstrap == "longer":
        arguments["values"] = np.zeros((shape[0] + 1, *shape[1:]), dtype)
    elif bootstrap == "last":
        arguments.update(last_values=np.zeros(shape[1:], dtype), truncated=flags, final_values=np.zeros(0, dtype))
    else:
        arguments.update(next_values=empty, truncated=flags)
    given = (np.zeros(shape, dtype), np.zeros(shape, dtype))
    for backend, out in product(ONE_TARGET, (None, given)):
        got = fastgae.gae(**arguments, out=out, backend=backend)
        assert [a.shape for a in got] == [shape, shape]
        assert [a.dtype for a in got] == [dtype, dtype]
    assert got.advantages is given[0]


def test_empty_with_time_elsewhere(backend):
    got = fastgae.gae(np.zeros((3, 0)), np.zeros((3, 1)), np.zeros((3, 0), bool), time_axis=1, backend=backend)
    assert got.returns.shape == (3, 0)


OVERLAPS = ["rewards", "values", "next_values", "final_values", "last_values"]


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_out_may_overlap_an_input(backend, dtype, name, time_axis):
    """In place, and shifted by some elements either way: what separate memory would give."""
    bootstrap = "next_values" if name == "next_values" else "final_dense"
    case = make_case((17, 33), dtype, "random", bootstrap)
    expected = reference(case)
    if time_axis == 1:
        case, expected = case.mapped(lambda _, a: a.T.copy()), [a.T for a in expected]
    for which, shift, input_first in product((0, 1), (0, 1, 33, 40), (True, False)):
        arguments = case.arguments()
        array = arguments[name]
        memory = np.full(shift + case.rewards.size, np.nan, dtype)
        at_input, at_out = (0, shift) if input_first else (shift, 0)
        shared = memory[at_input:][: array.size].reshape(array.shape)
        shared[...] = array
        out = [np.full(case.rewards.shape, np.nan, dtype) for _ in range(2)]
        out[which] = memory[at_out:][: case.rewards.size].reshape(case.rewards.shape)
        fastgae.gae(**{**arguments, name: shared}, out=tuple(out), time_axis=time_axis, backend=backend)
        for got, right in zip(out, expected, strict=True):
            assert_same_bits(got, right, f"output {which}, shift {shift}, {input_first=}")


def test_out_may_be_both_inputs(backend, dtype):
    """advantages over rewards and returns over values."""
    case = make_case((65, 33), dtype)
    expected = reference(case)
    fastgae.gae(**case.arguments(), out=(case.rewards, case.values), backend=backend)
    assert_same_bits(case.rewards, expected.advantages)
    assert_same_bits(case.values, expected.returns)


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
