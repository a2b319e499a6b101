"""A long trajectory runs in pieces that begin early, from 0; where that was not early enough, it is redone.

The compiled module says how many steps were redone, so that the fall-back is seen to run where it must, and only there.
The reference takes as long for many envs as for one, so one call of it stands for many rollouts.
"""

import functools
from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._call import Call
from support.backends import CPP, WITH_KERNELS
from support.cases import assert_same_bits, env_major

STEPS = 20_000
COEFFICIENTS = [(0.99, 0.95), (0.999, 0.96), (0.99, 0.0), (0.5, 0.5), (1.0, 1.0)]
TARGETS = [name.partition(":")[2] for name in CPP]


def spikes(rng, a):
    """A number so large that its trace outlives everything."""
    huge = np.finfo(a.dtype).max / 1e3
    return np.where(rng.random(a.shape) < 2 / len(a), np.copysign(huge, a), a * 1e-20).astype(a.dtype)


def denormals(rng, a):
    """What gamma lambda does not shrink: rounding holds the smallest numbers where they are."""
    return (np.sign(a) * np.finfo(a.dtype).smallest_subnormal * rng.integers(0, 4, a.shape)).astype(a.dtype)


def minus_zeros(rng, a):
    return -np.zeros_like(a)


def not_numbers(rng, a):
    """One in the middle of each env."""
    odd = a.copy()
    odd[len(a) // 2] = rng.choice([np.nan, np.inf, -np.inf])
    return odd


def constant(rng, a):
    return np.ones_like(a)


def big_steps(rng, a):
    """Large against small in turn."""
    return (a * 10.0 ** rng.integers(-18, 18, a.shape)).astype(a.dtype)


HOSTILE = [spikes, denormals, minus_zeros, not_numbers, constant, big_steps]


def test_numbers_that_are_not_forgotten(dtype):
    """The recursion begins with other advantages in each env. It is cut unless nothing decays, as NaN shows."""
    rng = np.random.default_rng(11)
    with np.errstate(all="ignore"):
        rewards, values, last = (
            np.concatenate([make(rng, rng.normal(size=(steps, 4)).astype(dtype)) for make in HOSTILE], axis=1)
            for steps in (6000, 6000, 1)
        )
    call = {"rewards": rewards, "values": values, "terminated": np.zeros(rewards.shape, bool), "last_values": last[0]}
    call["last_advantages"] = rng.normal(size=rewards.shape[1]).astype(dtype)
    for gamma, gae_lambda in COEFFICIENTS:
        how = {"gamma": gamma, "gae_lambda": gae_lambda}
        expected = fastgae.gae(**call, **how, backend="numpy")
        for (number, make), (begin, envs) in product(enumerate(HOSTILE), ((0, 1), (1, 3))):
            columns = np.s_[..., 4 * number + begin : 4 * number + begin + envs]
            some = {name: each[columns].copy() for name, each in call.items()}
            turned = env_major(some)
            for backend in WITH_KERNELS:
                what = f"{make.__name__}, {envs} envs, {backend}, {how}"
                for given in (some, turned):
                    for out in (None, (None, np.full(given["rewards"].shape, np.nan, dtype))):
                        got = fastgae.gae(**given, **how, out=out, backend=backend)
                        for array, right in zip(got, expected, strict=True):
                            if array is not None:
                                assert_same_bits(array if given is some else array.T, right[columns], what)
                if backend.startswith("cpp") and make is not_numbers:
                    assert (fastgae._core.redone() > 0) == (gamma < 1), what


@functools.cache
def reference(dtype, gamma_lambda, terminated, tiny):
    """Return rewards of 8 envs, and their results with V = 0. The rewards are random, or one of them is tiny."""
    rewards = np.random.default_rng(8).standard_normal((STEPS + 8, 8)).astype(dtype)
    if tiny:
        # 8 times the smallest number, times 0.9405, rounds to itself: every piece but the last began wrongly.
        rewards = np.zeros_like(rewards)
        rewards[-1, -1] = 8 * np.finfo(dtype).smallest_subnormal
    return rewards, fastgae.gae(**without_values(rewards, gamma_lambda, terminated), backend="numpy")


def without_values(rewards, gamma_lambda, terminated):
    zeros, flags = np.zeros_like(rewards), np.full(rewards.shape, terminated)
    call = {"rewards": rewards, "values": zeros, "terminated": flags, "last_values": zeros[0]}
    return call | {"gamma": 1.0, "gae_lambda": gamma_lambda}


def redone(dtype, envs, gamma_lambda, terminated=False, tiny=False):
    """Compute the last steps and envs, compare them with the reference, and return what each target redid of them."""
    rewards, expected = reference(dtype, gamma_lambda, terminated, tiny)
    some, counts = np.s_[-STEPS - envs :, -envs:], {}
    for target in TARGETS:
        got = fastgae._core.gae(Call(**without_values(rewards[some].copy(), gamma_lambda, terminated)), 1, target)
        counts[target] = fastgae._core.redone()
        assert_same_bits(got, [each[some] for each in expected], target)
    fastgae.n_step_returns(np.zeros(2), np.zeros(3), [0, 0], n=2, backend="cpp")
    assert fastgae._core.redone() == 0  # a call without pieces
    return counts


@pytest.mark.parametrize("envs", range(1, 9))
def test_only_what_is_never_forgotten_is_redone(dtype, envs):
    """All envs of a time-major rollout are one array, whose pieces begin and end within a row."""
    size = (STEPS + envs) * envs
    for gamma_lambda in (0.9, 0.9405, 0.99) if envs == 1 else (0.9,):
        counts = redone(dtype, envs, gamma_lambda)
        assert all(count <= size // 100 for count in counts.values()), counts
    if envs == 1:
        none = dict.fromkeys(TARGETS, 0)
        assert redone(dtype, envs, 0.99, terminated=True) == redone(dtype, envs, 1.0) == none
    if envs in (1, 3, 5):  # rows of one vector are computed in one piece
        counts = redone(dtype, envs, 0.9405, tiny=True)
        assert all(count > size // 2 for count in counts.values()), counts


MASKS = {
    "half": lambda rng, steps: rng.random(steps) < 0.5,
    "few": lambda rng, steps: rng.random(steps) < 0.1,
    "runs": lambda rng, steps: np.repeat(rng.random(steps // 400 + 1) < 0.5, 400)[:steps],
    "padded": lambda rng, steps: np.arange(steps) < rng.integers(1, steps),
    "after a prompt": lambda rng, steps: np.arange(steps) >= rng.integers(1, steps),
}


def test_pieces_forget_in_steps_that_exist(dtype):
    """Or at the end of an episode. Where no step exists, nothing is to be forgotten."""
    generators = [np.random.default_rng(1) for _ in MASKS]
    for envs, gamma_lambda, every in ((1, 0.9405, STEPS), (1, 1.0, 800), (5, 0.9405, STEPS)):
        masks = zip(MASKS.values(), generators, strict=True)
        exists = np.array([mask(rng, STEPS) for mask, rng in masks for _ in range(envs)])
        ends = np.broadcast_to(np.arange(1, STEPS + 1) % every == 0, exists.shape)
        rewards = np.concatenate([rng.standard_normal((envs, STEPS)) for rng in generators]).astype(dtype)
        call = {
            "rewards": rewards,
            "values": rewards[:, ::-1],
            "terminated": ends,
            "mask": exists | (ends & (every < STEPS)),
            "last_values": rewards[:, 0],
            "last_advantages": rewards[:, 1],
        }
        how = {"gamma": 1.0, "gae_lambda": gamma_lambda, "time_axis": 1}
        expected = fastgae.gae(**call, **how, backend="numpy")
        for (number, kind), target in product(enumerate(MASKS), TARGETS):
            rows = slice(number * envs, (number + 1) * envs)
            got = fastgae._core.gae(Call(**{name: each[rows] for name, each in call.items()}, **how), 1, target)
            assert_same_bits(got, [each[rows] for each in expected], f"{kind}, {target}")
            assert fastgae._core.redone() == 0, f"{kind}, {target}"


KINDS = [{}, {"mask": True}, {"returns_lambda": 0.5}, {"gae_lambda": 0.5, "returns_lambda": 0.9405}]


@pytest.mark.parametrize("options", KINDS, ids=["plain", "mask", "two lambdas", "another lambda"])
def test_pieces_of_every_kernel_are_redone(dtype, options):
    """The same numbers in some envs, one after the other in memory: flat, in lanes, and in lanes with options."""
    for envs, steps in ((1, 5000), (2, 2000), (3, 2000), (5, 5000), (8, 5000), (20, 5000)):
        rewards = np.zeros((envs, steps), dtype)
        rewards[:, -1] = 8 * np.finfo(dtype).smallest_subnormal
        zeros = np.zeros_like(rewards)
        arguments = {"rewards": rewards, "values": zeros, "terminated": zeros, "last_values": zeros[:, 0]}
        arguments |= {"gamma": 1.0, "gae_lambda": 0.9405, "time_axis": 1, **options}
        if "mask" in options:
            arguments["mask"] = np.arange(steps) != np.full((envs, 1), steps // 2)
        expected = fastgae.gae(**arguments, backend="numpy")
        for target in TARGETS:
            got = fastgae.gae(**arguments, num_threads=1, backend=f"cpp:{target}")
            assert_same_bits(got, expected, f"{target}, {envs} x {steps}")


@pytest.mark.parametrize("mask", [None, *MASKS])
def test_envs_of_one_array(dtype, mask):
    """Runs begin anywhere in an env, and results anywhere in a cache line. One row of flags may stand for all."""
    for steps, envs, last in product((37, 1100), (9, 40), (False, True)):
        rng, shape = np.random.default_rng(steps + envs), (envs, steps)
        ends = rng.random((3, *shape)) < 0.02
        call = {name: rng.standard_normal(shape).astype(dtype) for name in ("rewards", "values", "final_values")}
        call |= {"terminated": ends[0], "truncated": ends[1], "last_values": call["rewards"][:, 0]}
        if mask is not None:
            most = np.array([MASKS[mask](rng, steps) for _ in range(envs)])
            call |= {"mask": most | ends[2], "carry_over": rng.random() < 0.5}
        if last:
            call["last_advantages"] = call["values"][:, 0]
        row = np.broadcast_to(ends[0, rng.integers(envs)] & last, shape)
        for how in ({}, {"terminated": None, "truncated": None, "final_values": None}, {"terminated": row}):
            given = {**call, **how, "gae_lambda": rng.choice((0.5, 0.95)), "time_axis": 1}
            expected = fastgae.gae(**given, backend="numpy")
            for target, threads in product(TARGETS, (1, 2)):
                out = [np.full(envs * steps + 16, np.nan, dtype)[i:][: envs * steps].reshape(shape) for i in (2, 13)]
                got = fastgae.gae(**given, out=tuple(out), num_threads=threads, backend=f"cpp:{target}")
                assert_same_bits(got, expected, f"{target}, {envs} x {steps}, {how.keys()}")


@pytest.mark.parametrize("mask", MASKS)
def test_n_step_returns_leave_steps_out(dtype, mask):
    """Vectors of an env that lack some of their steps, or the one after them, stand between others."""
    for steps, n, own in product((2, 100), (1, 2, 7, 200), (False, True)):
        rng, shape = np.random.default_rng(steps + n), (20, steps)
        numbers = rng.standard_normal((4, *shape)).astype(dtype)
        ends = rng.random((2, *shape)) < 0.02
        call = {"rewards": numbers[0], "values": numbers[1], "terminated": ends[0], "truncated": ends[1], "n": n}
        call |= {"mask": np.array([MASKS[mask](rng, steps) for _ in range(20)])}
        call |= {"next_values": numbers[3]} if own else {"last_values": numbers[3, :, 0], "final_values": numbers[2]}
        call |= {"gamma": abs(numbers[3]).clip(max=1) if n == 7 else 0.9, "time_axis": 1}
        expected = fastgae.n_step_returns(**call, backend="numpy")
        for target in TARGETS:
            got = fastgae.n_step_returns(**call, backend=f"cpp:{target}")
            assert_same_bits(got, expected, f"{target}, {shape}, {n}")


def test_pieces_of_retrace_look_behind_skipped_steps(dtype):
    """The next trace of a piece that is redone is that of the next step that exists."""
    mask = np.random.default_rng(0).random((3, 5000)) < 0.5
    mask[:, -1] = True
    rewards = np.zeros(mask.shape, dtype)
    rewards[:, -1] = 8 * np.finfo(dtype).smallest_subnormal
    call = {"rewards": rewards, "values": 0 * rewards, "next_values": 0 * rewards, "terminated": 0 * rewards}
    call |= {"ratios": mask.astype(dtype), "mask": mask, "gamma": 1.0, "lambda_": 0.9405, "time_axis": 1}
    expected = fastgae.retrace(**call, backend="numpy")
    for backend in WITH_KERNELS:
        assert_same_bits(fastgae.retrace(**call, num_threads=1, backend=backend), expected, backend)
