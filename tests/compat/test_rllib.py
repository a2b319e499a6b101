"""RLlib's loop, written out: float64 below float32, direct flags, truncation bootstraps from the next row."""

import numpy as np
import pytest

from fastgae.compat.rllib import compute_value_targets
from support.cases import assert_same_bits


def rollout(steps, dtype):
    rng = np.random.default_rng(steps)
    ends, terminated = rng.random(steps) < 0.3, rng.random(steps) < 0.5
    values, rewards = (rng.normal(size=steps).astype(dtype) for _ in range(2))
    return values, rewards, ends & terminated, ends & ~terminated | (rng.random(steps) < 0.05)


def loop(values, rewards, terminateds, truncateds, gamma, lambda_):
    advantages = np.empty(len(values), np.float32)
    carried = following = 0.0
    for t in range(len(values) - 1, -1, -1):
        bootstraps = 0.0 if terminateds[t] else 1.0
        goes_on = 0.0 if truncateds[t] else bootstraps
        value, reward = float(values[t]), float(rewards[t])
        carried = reward + gamma * bootstraps * following - value + gamma * lambda_ * goes_on * carried
        advantages[t], following = carried, value
    return (advantages + values).astype(np.float32)


@pytest.mark.parametrize("steps", [0, 1, 2, 9, 500])
def test_same_bits(steps, dtype):
    arrays = rollout(steps, dtype)
    before = [array.copy() for array in arrays]
    assert_same_bits(compute_value_targets(*arrays, 0.99, 0.95), loop(*arrays, 0.99, 0.95))
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


@pytest.mark.parametrize("flags", [np.int8, np.float64])
def test_flags_may_be_numbers(flags):
    values, rewards, terminateds, truncateds = rollout(50, np.float32)
    got = compute_value_targets(values, rewards, terminateds.astype(flags), truncateds.astype(flags), 0.9, 0.8)
    assert_same_bits(got, loop(values, rewards, terminateds, truncateds, 0.9, 0.8))
