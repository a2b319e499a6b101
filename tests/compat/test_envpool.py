"""The loop of EnvPool's example, written out: the next step of an env is found by its id."""

import numpy as np
import pytest

from fastgae.compat.envpool import compute_gae

# (batches, envs in each, envs)
SIZES = [(1, 1, 1), (5, 3, 3), (40, 4, 9), (33, 8, 64), (3, 2, 50)]


def rollout(size, dtype):
    steps, batch, envs = size
    rng = np.random.default_rng(size)
    ids = np.array([rng.choice(envs, batch, replace=False) for _ in range(steps)], np.int32)
    value, reward = (rng.normal(size=(steps, batch)).astype(dtype) for _ in range(2))
    return value, reward, rng.random((steps, batch)) < 0.2, ids, envs


def loop(gamma, gae_lambda, value, reward, done, env_id, numenv):
    returns, advantages, mask = (np.empty(value.shape) for _ in range(3))
    later = {}  # of each env: value and advantage of its step that was seen last
    for t in range(len(value) - 1, -1, -1):
        for b, env in enumerate(env_id[t]):
            next_value, next_advantage = later.get(env, (0.0, 0.0))
            alive = 0.0 if done[t, b] else 1.0
            delta = float(reward[t, b] - value[t, b]) + gamma * next_value * alive
            advantages[t, b] = delta + gamma * gae_lambda * alive * next_advantage
            returns[t, b] = advantages[t, b] + value[t, b]
            mask[t, b] = done[t, b] or env in later
            later[env] = float(value[t, b]), advantages[t, b]
    return returns, advantages, mask


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_within_rounding(size, dtype):
    arrays = rollout(size, dtype)
    got, expected = compute_gae(0.99, 0.95, *arrays), loop(0.99, 0.95, *arrays)
    for array, theirs in zip(got, expected, strict=True):
        assert array.dtype == theirs.dtype
        np.testing.assert_allclose(array, theirs, rtol=0, atol=8 * np.finfo(dtype).eps * np.abs(theirs).max())
    assert np.array_equal(got[2], expected[2])


def test_no_batches():
    zeros = np.zeros((0, 3), np.float32)
    assert [array.shape for array in compute_gae(0.99, 0.95, zeros, zeros, zeros, zeros.astype(int), 4)] == [(0, 3)] * 3


@pytest.mark.parametrize("ids", [[[0, 4]], [[-1, 0]], [[0.0, 1.0]]])
def test_wrong_ids(ids):
    zeros = np.zeros((1, 2), np.float32)
    with pytest.raises((ValueError, TypeError), match=r"env_id must (be|hold) integers"):
        compute_gae(0.99, 0.95, zeros, zeros, zeros, np.array(ids), 4)
