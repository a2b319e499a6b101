"""rl_games' loops, written out: shifted flags, truncation as termination, and the mask of recurrent policies."""

import numpy as np
import pytest

from fastgae.compat import rl_games
from support.cases import assert_same_bits
from support.kinds import KINDS, SHAPES, called

COEFFICIENTS = {"gamma": 0.99, "tau": 0.95}


def rollout(shape, dtype, heads=2):
    rng = np.random.default_rng(shape)
    flags = (rng.random((shape[0] + 1, shape[1])) < 0.2).astype(np.float32)
    values = rng.normal(size=(shape[0] + 1, shape[1], heads)).astype(dtype)
    rewards = rng.normal(size=(*shape, heads)).astype(dtype)
    masks = (rng.random(shape) < 0.8).astype(np.float32)
    return (flags[-1], values[-1], flags[:-1], values[:-1], rewards), masks


def loop(last_flag, last_value, flags, values, rewards, masks, gamma, tau):
    steps = len(rewards)
    advantages = np.zeros_like(rewards)
    following_advantage = np.zeros_like(rewards[0])
    for t in range(steps - 1, -1, -1):
        flag = flags[t + 1] if t + 1 < steps else last_flag
        following_value = values[t + 1] if t + 1 < steps else last_value
        alive = (1.0 - flag)[:, np.newaxis].astype(rewards.dtype)
        delta = rewards[t] + gamma * following_value * alive - values[t]
        following_advantage = delta + gamma * tau * alive * following_advantage
        following_advantage = following_advantage * masks[t][:, np.newaxis].astype(rewards.dtype)
        advantages[t] = following_advantage
    return advantages


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_discount_values(shape, dtype, kind):
    arrays, masks = rollout(shape, dtype)
    (got,) = called(kind, rl_games.discount_values, *arrays, **COEFFICIENTS)
    assert_same_bits(got, loop(*arrays, np.ones_like(masks), **COEFFICIENTS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_discount_values_masks(shape, dtype, kind):
    arrays, masks = rollout(shape, dtype)
    (got,) = called(kind, rl_games.discount_values_masks, *arrays, masks, **COEFFICIENTS)
    assert_same_bits(got, loop(*arrays, masks, **COEFFICIENTS))
