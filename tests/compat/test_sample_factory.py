"""sample-factory's loop, written out: env-major, direct flags, and steps that are not valid."""

import numpy as np
import pytest

from fastgae.compat.sample_factory import gae_advantages
from support.cases import assert_same_bits
from support.kinds import KINDS, SHAPES, called


def rollout(shape, dtype, flags):
    rng = np.random.default_rng(shape)
    steps, envs = shape
    rewards = rng.normal(size=(envs, steps)).astype(dtype)
    dones = (rng.random((envs, steps)) < 0.2).astype(flags)
    valids = (rng.random((envs, steps + 1)) < 0.8).astype(flags)
    return rewards, dones, rng.normal(size=(envs, steps + 1)).astype(dtype), valids


def loop(rewards, dones, values, valids, gamma, gae_lambda):
    dones, valids = dones.astype(rewards.dtype), valids.astype(rewards.dtype)
    advantages = np.empty_like(rewards)
    carried = np.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        alive, valid = 1.0 - dones[:, t], valids[:, t]
        bootstrap = alive * (gamma * values[:, t + 1] * valids[:, t + 1])
        term = (rewards[:, t] - values[:, t]) * valid + bootstrap
        carried = term + (gamma * gae_lambda * valid + (1.0 - valid)) * carried * alive
        advantages[:, t] = carried
    return advantages


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [bool, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits(shape, dtype, flags, kind):
    arrays = rollout(shape, dtype, flags)
    (got,) = called(kind, gae_advantages, *arrays, 0.99, 0.95)
    assert_same_bits(got, loop(*arrays, 0.99, 0.95))
