"""The loops that Stable-Baselines3 and CleanRL run give the same bits in float32: switching to fastgae changes nothing.

Both keep a *shifted* flag: the one in row t says that observation t is the first of an episode, so step t ended an
episode if row t + 1 says so; the flag after the last row comes on its own. Neither knows truncation here.
"""

from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS
from support.cases import SIZES, assert_same_bits

COEFFICIENTS = [(0.99, 0.95), (0.98, 0.8), (1.0, 1.0), (0.999, 0.9)]


def stable_baselines3(rewards, values, episode_starts, last_values, dones, gamma, gae_lambda):
    """RolloutBuffer.compute_returns_and_advantage; gamma and gae_lambda are Python numbers, the arrays float32."""
    steps = len(rewards)
    advantages = np.zeros_like(rewards)
    carried = 0
    for step in reversed(range(steps)):
        if step == steps - 1:
            going_on = 1.0 - dones.astype(np.float32)
            following = last_values
        else:
            going_on = 1.0 - episode_starts[step + 1]
            following = values[step + 1]
        delta = rewards[step] + gamma * following * going_on - values[step]
        carried = delta + gamma * gae_lambda * going_on * carried
        advantages[step] = carried
    return advantages, advantages + values


def cleanrl(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    """The bootstrap of ppo.py, on the (num_steps, num_envs) tensors it keeps, here as float32 arrays."""
    num_steps = len(rewards)
    advantages = np.zeros_like(rewards)
    carried = np.zeros_like(next_value)
    for t in range(num_steps - 1, -1, -1):
        last = t == num_steps - 1
        going_on = 1.0 - (next_done if last else dones[t + 1])
        following = next_value if last else values[t + 1]
        delta = rewards[t] + gamma * following * going_on - values[t]
        advantages[t] = carried = delta + gamma * gae_lambda * going_on * carried
    return advantages, advantages + values


def rollout(size, seed):
    """float32 rewards with many zeros, values that are never zero, and done flags of each step."""
    rng = np.random.default_rng([*size, seed])
    rewards = (rng.normal(size=size) * (rng.random(size) < 0.5)).astype(np.float32)
    values = rng.normal(size=(size[0] + 1, size[1])).astype(np.float32)
    return np.abs(rewards) if seed % 2 else rewards, values, rng.random(size) < 0.15


def theirs(size, seed, coefficients):
    """Return the results of both loops, by name."""
    rewards, values, done = rollout(size, seed)
    starts = np.vstack([np.zeros_like(done[:1]), done[:-1]]).astype(np.float32)
    given = rewards, values[:-1], starts, values[-1]
    return {
        "stable_baselines3": stable_baselines3(*given, done[-1], *coefficients),
        "cleanrl": cleanrl(*given, done[-1].astype(np.float32), *coefficients),
    }


@pytest.mark.parametrize("size", [*SIZES, (128, 8), (2048, 1)], ids=str)
def test_same_bits(size):
    for seed, coefficients in product(range(2), COEFFICIENTS):
        gamma, gae_lambda = coefficients
        given, of_loops = rollout(size, seed), theirs(size, seed, coefficients)
        for backend in BACKENDS:
            got = fastgae.gae(*given, gamma=gamma, gae_lambda=gae_lambda, backend=backend)
            for name, results in of_loops.items():
                for array, expected in zip(got, results, strict=True):
                    assert_same_bits(array, expected, f"{backend}, {name}, {coefficients}")
