"""Bits in places that the random calls of ``fuzz`` do not reach, or reach rarely without the smallest thresholds."""

import os
import platform
import warnings
from functools import partial
from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._interop.arrays import BFLOAT16, widened
from fuzz.calls import upper_halves
from support.backends import BACKENDS, CPP, ONE_TARGET
from support.cases import BOOTSTRAPS, assert_same_bits, make_case

ALL_BITS = np.arange(1 << 16, dtype=np.uint16)
NARROW = {"float16": lambda array: array.astype(np.float16), "bfloat16": upper_halves}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or os.name != "posix", reason="another fesetround")
def test_every_backend_computes_in_the_modes_of_its_thread(python):
    """docs/exactness.md promises it. Here the thread rounds upwards."""
    python(
        "import ctypes, sys, numpy as np, fastgae\n"
        "rng = np.random.default_rng(0)\n"
        "ctypes.CDLL(None).fesetround(0x800)\n"
        "for shape in ((300, 3), (40, 200), (20000, 1)):\n"
        "    rewards, values = rng.normal(size=(2, *shape)).astype(np.float32)\n"
        "    call = {'terminated': rewards > 2, 'last_values': values[0], 'normalize': 'global'}\n"
        "    results = [fastgae.gae(rewards, values, **call, backend=name) for name in sys.argv[1:]]\n"
        "    for result in results:\n"
        "        assert [a.tobytes() for a in result] == [a.tobytes() for a in results[0]]\n"
        "assert np.float32(1) + np.float32(1e-30) > 1\n",
        *BACKENDS,
    )


def test_out_interleaved(backend, dtype):
    """Both outputs in one block, as fields side by side, as rows in turn, and as those of env-major arrays."""
    case = make_case((17, 33), dtype)
    rows, envs = np.empty((17, 2, 33), dtype).swapaxes(1, 2), np.empty((33, 2, 17), dtype).transpose(2, 0, 1)
    for block, order in ((np.empty((17, 33, 2), dtype), "C"), (rows, "C"), (envs, "F")):
        given = case.mapped(lambda _, array, order=order: np.asarray(array, order=order)).arguments()
        fastgae.gae(**given, out=(block[..., 0], block[..., 1]), backend=backend)
        for i, right in enumerate(fastgae.gae(**case.arguments(), backend="numpy")):
            assert_same_bits(block[..., i], right)
        fastgae.normalize(given["rewards"], out=block[..., 0], backend=backend)
        assert_same_bits(block[..., 0], fastgae.normalize(given["rewards"], backend="numpy"))


def test_a_long_trajectory_carries_the_sign_of_zero(backend, dtype):
    """Every advantage is -0.0, also where it is computed in pieces, which begin with 0.0."""
    zeros, ends = np.zeros((20_000, 1), dtype), np.zeros((20_000, 1), bool)
    ends[-1] = True
    got = fastgae.gae(-zeros, zeros, ends, next_values=-zeros, backend=backend).advantages
    assert_same_bits(got, -zeros)


def test_results_are_the_callers_own(backend):
    """Fresh, writable memory that shares nothing with the inputs, even read-only ones, or with the other result."""
    case = make_case((9, 33), np.dtype(np.float32))
    case = case.mapped(lambda _, a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape))
    got = fastgae.gae(**case.arguments(), backend=backend)
    assert all(array.flags.writeable and type(array) is np.ndarray for array in got)
    given = [each for each in case.arguments().values() if isinstance(each, np.ndarray)]
    assert not any(np.shares_memory(*pair) for pair in [got, *product(got, given)])


def test_no_coefficient_outside_is_overlooked(backend, dtype):
    """The compiled backend looks at 16 numbers of a row of memory at once: these shapes leave a rest."""
    outside = (np.nan, np.nextafter(*dtype.type([1, 2])), -np.nextafter(*dtype.type([0, 1])))
    for shape, number, place in product([(19, 1), (1, 37), (37, 19), (600, 3)], outside, (0, 15, -16, -1)):
        case = make_case(shape, dtype, "random", "last_values")
        wrong = np.linspace(0, 1, np.prod(shape), dtype=dtype).reshape(shape)
        wrong.flat[place] = number
        for name, array in product(("gamma", "gae_lambda"), (wrong, wrong.T.copy().T, wrong.repeat(2, 1)[:, ::2])):
            with pytest.raises(ValueError, match=f"{name} .*\\[0, 1\\]"):
                fastgae.gae(**case.arguments() | {name: array}, backend=backend)


@pytest.mark.parametrize("bootstrap", BOOTSTRAPS)
def test_short_envs(backend, dtype, bootstrap):
    """The compiled backend takes env-major ones without gaps for one trajectory, also where the last delta is -0."""
    for size, flags, gap, zero in product(
        [(3, 700), (16, 130), (63, 65), (200, 33)], ("none", "random"), (0, 3), (False, True)
    ):
        case = make_case(size, dtype, flags, bootstrap)
        if zero:
            case.values[size[0] - 1, ::7] = 0
            for each in (case.rewards[-1:], case.values[size[0] :], case.last_values, case.next_values):
                if each is not None:
                    each[...] = -0.0

        def turned(_, array, gap=gap):
            room = np.ones((*array.shape[1:], len(array) + gap), array.dtype)[..., : len(array)]
            room[...] = array.T
            return room

        got = fastgae.gae(**case.mapped(turned).arguments(), time_axis=1, backend=backend)
        assert_same_bits([each.T for each in got], fastgae.gae(**case.arguments(), backend="numpy"))


@pytest.mark.parametrize("shape", [(1 << 10, 1 << 6), (100, 37)])
@pytest.mark.parametrize("kind", NARROW)
def test_every_number_of_16_bits_goes_through_the_kernels(backend, kind, shape):
    """The advantage of a last step without a value is its reward."""
    for bits in (ALL_BITS, ALL_BITS[-1, ...]):  # NumPy 1 promotes arrays without axes by their numbers
        assert_same_bits(widened(bits.view(BFLOAT16)), np.left_shift(bits, 16, dtype=np.uint32).view(np.float32))
    given = np.resize(ALL_BITS, shape).view(np.float16 if kind == "float16" else BFLOAT16)
    for time_axis in (0, -1):
        call = {"terminated": np.ones(shape, bool), "last_values": 0.0, "time_axis": time_axis, "backend": backend}
        assert_same_bits(fastgae.gae(given, np.zeros(shape, np.float32), **call).advantages, widened(given))


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("backend", CPP)  # others widen by NumPy
def test_threads_widen_all_inputs_of_16_bits(backend, kind):
    """Enough steps for two threads, which widen an odd number of them."""
    for bootstrap, time_axis in product(("longer_values", "next_values", "final_dense", "final_sparse"), (0, 1)):
        case = make_case((4200, 67), np.float32, bootstrap=bootstrap)
        call = {name: each for name, each in case.arguments().items() if isinstance(each, np.ndarray)}
        call = {name: each.T.copy() if time_axis and each.ndim == 2 else each for name, each in call.items()}
        if case.sparse:
            call["final_values"] = call["final_values"][call["truncated"]]
        taken = {name: each if each.dtype == bool else NARROW[kind](each) for name, each in call.items()}
        wide = {name: widened(each) for name, each in taken.items()}
        expected = fastgae.gae(**wide, time_axis=time_axis, backend="numpy")
        for threads in (1, 2):
            got = fastgae.gae(**taken, time_axis=time_axis, backend=backend, num_threads=threads)
            assert_same_bits(got, expected, f"{bootstrap}, time_axis={time_axis}, {threads} threads")


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("backend", ONE_TARGET)
def test_next_step_without_prev_done_warns_where_row_0_looks_like_a_reset_row(backend, narrow):
    case = make_case((33, 9), np.float32, "random", "last_values")
    case.terminated[0, :2] = True, False
    rewards = (1 + abs(case.rewards)).astype(np.float16 if narrow else np.float32)
    rewards[0] = rewards[1:][case.terminated[:-1]] = 0  # reset rows

    def warned(rewards, **how):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            how = {"last_values": case.last_values, "autoreset": "next_step", "backend": backend, **how}
            call = partial(fastgae.gae, rewards, case.values[:33], case.terminated, **how)
            exec(compile("call()", __file__, "exec"), {"call": call})  # the caller may have no __name__
        assert all((warning.filename, warning.lineno) == (__file__, 1) for warning in caught)  # the line of the call
        return [str(warning.message) for warning in caught]

    count = np.count_nonzero(~case.terminated[0])
    (message,) = warned(rewards)
    for words in (f"reset row in {count} of 9 environments", "Pass prev_done", "all False for the first rollout"):
        assert words in message
    turned = (each.T for each in (rewards, case.values[:33], case.terminated))
    with pytest.warns(UserWarning, match=f"reset row in {count} of 9 environments"):
        fastgae.gae(*turned, last_values=case.last_values, autoreset="next_step", time_axis=1, backend=backend)
    assert warned(rewards, prev_done=np.zeros(9)) == warned(rewards, autoreset="same_step") == []
    for change in ("row 0 has rewards", "another row has none", "the rows after a done have rewards"):
        other = rewards.copy()
        if change == "another row has none":
            other[5][~case.terminated[4]] = 0
        else:
            other[: 1 if "row 0" in change else 0] = other[1:][case.terminated[:-1]] = 1
        assert warned(other) == [], change


def test_the_last_step_is_the_last_that_exists(backend):
    """discounted_returns needs no last value where each episode ends with it."""
    rewards, exists = np.ones((3, 2), np.float32), np.array([[1, 0], [1, 0], [0, 0]])
    in_time, where_masked = np.array([[0, 0], [1, 0], [0, 0]]), np.array([[0, 0], [0, 0], [1, 1]])
    got = fastgae.discounted_returns(rewards, in_time, mask=exists, gamma=0.5, backend=backend)
    assert_same_bits(got, np.float32([[1.5, 0.0], [1.0, 0.0], [0.0, 0.0]]))
    got = fastgae.discounted_returns(rewards.T, where_masked.T, time_axis=1, gamma=0.5, backend=backend)
    assert_same_bits(got, np.float32([[1.75, 1.5, 1.0]] * 2))
    assert fastgae.discounted_returns(rewards[:0], in_time[:0], backend=backend).shape == (0, 2)
    for without_end, mask in ((where_masked, exists), (in_time, None)):
        with pytest.raises(ValueError, match="the last step does not end every episode"):
            fastgae.discounted_returns(rewards, without_end, mask=mask, backend=backend)


def test_rewards_alone_keep_minus_zero_before_a_masked_step(backend):
    zeros, no, exists = np.full((3, 1), np.float32(-0.0)), np.zeros((3, 1), bool), np.array([[1], [0], [1]])
    given = {"final_values": zeros, "mask": exists, "gamma": np.array([[-0.0], [1.0], [1.0]]), "last_values": 0.0}
    got = fastgae.discounted_returns(zeros, no, no, **given, backend=backend)
    assert_same_bits(got, np.float32([[-0.0], [0.0], [0.0]]))


def test_packed_coefficients_say_by_their_axes_what_they_are_of(backend):
    """There are as many sequences as steps here, because one of the sequences is empty."""
    rewards, values, starts = np.float32([1.0, 2.0]), np.ones(2, np.float32), np.array([0, 0, 2])
    lambdas = np.array([0.0, 0.5])
    given = {"gamma": 1.0, "mask": values > 0, "backend": backend}  # another test compiles Numba's kernel with a mask
    per_step = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas, **given)
    per_sequence = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas[:, np.newaxis], **given)
    assert per_step.advantages.tolist() == [1.0, 1.0]
    assert per_sequence.advantages.tolist() == [1.5, 1.0]


def test_normalize_far_from_0_and_of_nothing(backend):
    """Sums of float32 would not survive the first array; numbers that are all the same become 0.

    Sums in float64 are rounded, too, in an order that memory does not decide.
    """
    cube = np.random.default_rng(1).normal(size=(7, 31, 32))
    in_c_order, mean, std = fastgae.normalize(cube, backend=backend), cube.mean(0), cube.std(0)
    for array in (cube, np.asfortranarray(cube)):
        assert_same_bits(fastgae.normalize(array, backend=backend), in_c_order)
        by_given = fastgae.normalize(array, mean=mean, std=std, eps=0.5, backend=backend)
        assert_same_bits(by_given, (cube - mean) * (1 / (std + 0.5)))
    array = np.float32(1e4) + np.random.default_rng(0).normal(size=(4096, 32)).astype(np.float32)
    got = fastgae.normalize(array, backend=backend).astype(np.float64)
    assert abs(got.mean()) < 1e-6
    assert got.std() == pytest.approx(1.0, abs=1e-6)
    for by in ("global", "per_env"):
        assert fastgae.normalize(np.empty((0, 3)), by=by, backend=backend).shape == (0, 3)
        assert (fastgae.normalize(np.full((5, 3), 2.0), by=by, backend=backend) == 0).all()
        odd = np.resize(np.array([0, 1, 2, 128, 255], np.uint8), array.shape).view(bool)  # any byte but 0 is True
        counted = fastgae.normalize(array, odd.view(np.uint8) != 0, by=by, backend=backend)
        assert_same_bits(fastgae.normalize(array, odd, by=by, backend=backend), counted)
        assert np.isnan(fastgae.normalize(np.array([[1.0], [3.0]]), by=by, ddof=2, backend=backend)).all()
        nothing = np.full((5, 3), np.nan), np.zeros((5, 3), bool)
        assert (fastgae.normalize(*nothing, by=by, backend=backend) == 0).all()
