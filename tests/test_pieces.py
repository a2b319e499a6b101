"""A long trajectory runs in pieces that begin early, from 0; where that was not early enough, it is redone.

The compiled module says how many steps were redone, so that the fall-back is seen to run where it must, and only there.
"""

import numpy as np
import pytest

import fastgae
from fastgae._call import Call
from support.cases import assert_same_bits
from support.exactness import answer

_core = pytest.importorskip("fastgae._core", exc_type=ImportError)

STEPS = 20_000


def redone(rewards, terminated, gamma_lambda, backend):
    """Advantages with V = 0, checked against the reference, and how many steps were redone for them."""
    rewards, terminated = rewards.reshape(len(rewards), -1), terminated.reshape(len(rewards), -1)
    zeros = np.zeros_like(rewards)
    given = Call(rewards, zeros, terminated, last_values=zeros[0], gamma=1.0, gae_lambda=gamma_lambda)
    advantages, returns = _core.gae(given, 1, backend)
    count = _core.redone()
    named = {"rewards": rewards, "values": zeros, "terminated": terminated, "last_values": zeros[0]}
    right = answer(fastgae.gae, **named, gamma=1.0, gae_lambda=gamma_lambda)
    assert_same_bits(advantages, right.advantages)
    assert_same_bits(returns, right.returns)
    return count


@pytest.fixture(params=[name for name in _core.compiled_targets if _core.supports(name)])
def target(request):
    return request.param


@pytest.fixture
def rewards(dtype):
    return np.random.default_rng(5).standard_normal(STEPS).astype(dtype)


@pytest.fixture
def never():
    return np.zeros(STEPS, bool)


@pytest.mark.parametrize("gamma_lambda", [0.9, 0.9405, 0.99])
def test_ordinary_rewards_are_forgotten_in_time(rewards, never, gamma_lambda, target):
    assert redone(rewards, never, gamma_lambda, target) <= STEPS // 100


def test_an_episode_end_forgets_everything(rewards, never, target):
    assert redone(rewards, ~never, 0.99, target) == 0


def test_what_rounding_never_forgets_is_redone(dtype, never, target):
    """8 times the smallest number, times 0.9405, rounds to itself: every piece but the last began wrongly."""
    rewards = np.zeros(STEPS, dtype)
    rewards[-1] = 8 * np.finfo(dtype).smallest_subnormal
    assert redone(rewards, never, 0.9405, target) > STEPS // 2


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_arithmetic_never_forgets_is_redone(rewards, never, number, target):
    rewards[STEPS // 2] = number
    assert redone(rewards, never, 0.9405, target) > STEPS // 5


def test_without_decay_there_are_no_pieces(rewards, never, target):
    assert redone(rewards, never, 1.0, target) == 0


@pytest.mark.parametrize("envs", range(2, 9))
def test_few_envs_are_forgotten_in_time(dtype, envs, target):
    """All envs of a time-major rollout are one array, whose pieces begin and end within a row."""
    rewards = np.random.default_rng(envs).standard_normal((STEPS + envs, envs)).astype(dtype)
    assert redone(rewards, np.zeros(rewards.shape, bool), 0.9, target) <= rewards.size // 100


@pytest.mark.parametrize("envs", [3, 5])  # rows of one vector are computed in one piece
def test_of_few_envs_one_is_never_forgotten(dtype, envs, target):
    rewards = np.zeros((STEPS + envs, envs), dtype)
    rewards[-1, 1] = 8 * np.finfo(dtype).smallest_subnormal
    assert redone(rewards, np.zeros(rewards.shape, bool), 0.9405, target) > rewards.size // 2


@pytest.mark.parametrize("options", [{}, {"mask": True}, {"returns_lambda": 0.5}], ids=["plain", "mask", "two lambdas"])
def test_pieces_of_every_kernel_are_redone(dtype, target, options):
    """The same numbers in some envs, one after the other in memory: flat, in lanes, and in lanes with options."""
    for envs, steps in ((1, 5000), (2, 2000), (3, 2000), (5, 5000), (8, 5000), (20, 5000)):
        rewards = np.zeros((envs, steps), dtype)
        rewards[:, -1] = 8 * np.finfo(dtype).smallest_subnormal
        zeros = np.zeros_like(rewards)
        arguments = {"rewards": rewards, "values": zeros, "terminated": zeros, "last_values": zeros[:, 0], **options}
        if "mask" in options:
            arguments["mask"] = np.arange(steps) != np.full((envs, 1), steps // 2)
        arguments |= {"gamma": 1.0, "gae_lambda": 0.9405, "time_axis": 1}
        got = fastgae.gae(**arguments, num_threads=1, backend=f"cpp:{target}")
        for array, right in zip(got, answer(fastgae.gae, **arguments), strict=True):
            assert_same_bits(array, right, f"{envs} x {steps}")
