"""rsl_rl's loop, written out: direct flags, truncation as termination, gamma and lambda rounded one by one."""

import numpy as np
import pytest

from fastgae.compat.rsl_rl import compute_returns
from support.cases import assert_same_bits
from support.kinds import KINDS, SHAPES, called

# Of the first two, the product rounded once to float32 is not the product of the rounded numbers.
COEFFICIENTS = [(0.98, 0.9), (0.9, 0.95), (1.0, 1.0), (0.0, 1.0)]


def rollout(shape, dtype):
    rng = np.random.default_rng(shape)
    values = rng.normal(size=(shape[0] + 1, shape[1], 1)).astype(dtype)
    rewards = rng.normal(size=(*shape, 1)).astype(dtype)
    return rewards, values[:-1], (rng.random((*shape, 1)) < 0.2).astype(np.uint8), values[-1]


def loop(rewards, values, dones, last_values, gamma, lam):
    following_value, following_advantage = last_values, np.zeros_like(last_values)
    returns = np.empty_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        discount = (1 - dones[t]).astype(rewards.dtype) * gamma
        delta = rewards[t] + discount * following_value - values[t]
        following_value, following_advantage = values[t], delta + discount * lam * following_advantage
        returns[t] = following_advantage + values[t]
    return returns, returns - values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits(shape, dtype, coefficients, kind):
    arrays = rollout(shape, dtype)
    got = called(kind, compute_returns, *arrays, *coefficients, normalize_advantage=False)
    for array, expected in zip(got, loop(*arrays, *coefficients), strict=True):
        assert_same_bits(array, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_normalized(shape, dtype, kind):
    arrays = rollout(shape, dtype)
    returns, got = called(kind, compute_returns, *arrays, 0.99, 0.95)
    expected, advantages = loop(*arrays, 0.99, 0.95)
    assert_same_bits(returns, expected)
    advantages = advantages.astype(np.float64)
    expected = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)


def test_one_step_has_no_std():
    assert np.isnan(compute_returns(*rollout((1, 1), np.float32), 0.99, 0.95)[1]).all()
