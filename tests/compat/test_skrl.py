"""skrl's loop, written out: direct flags, truncation a boundary or not, one bracket around V and A."""

import numpy as np
import pytest

from fastgae.compat import skrl
from fastgae.compat.skrl import compute_gae
from support.kinds import KINDS, SHAPES, called


def rollout(shape, dtype):
    rng = np.random.default_rng(shape)
    values = rng.normal(size=(shape[0] + 1, shape[1], 1)).astype(dtype)
    return {
        "rewards": rng.normal(size=(*shape, 1)).astype(dtype),
        "terminated": rng.random((*shape, 1)) < 0.15,
        "truncated": rng.random((*shape, 1)) < 0.15,
        "values": values[:-1],
        "last_values": values[-1],
    }


def loop(rewards, terminated, truncated, values, last_values, gamma, lambda_, bootstrap_in_reward):
    advantages = np.empty_like(rewards)
    following = last_values
    carried = np.zeros_like(last_values)
    for t in range(len(rewards) - 1, -1, -1):
        boundary = terminated[t] | truncated[t] if bootstrap_in_reward else terminated[t]
        weight = gamma * (~boundary).astype(rewards.dtype)
        carried = rewards[t] - values[t] + weight * (following + lambda_ * carried)
        advantages[t], following = carried, values[t]
    wide = advantages.astype(np.float64)
    return advantages + values, (wide - wide.mean()) / (wide.std(ddof=1) + 1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time_limit_bootstrap", [False, True])
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_within_rounding(shape, dtype, time_limit_bootstrap, kind):
    arrays = rollout(shape, dtype)
    settings = {"discount_factor": 0.98, "lambda_coefficient": 0.9, "time_limit_bootstrap": time_limit_bootstrap}
    got = called(kind, compute_gae, **arrays, **settings)
    theirs = loop(**arrays, gamma=0.98, lambda_=0.9, bootstrap_in_reward=time_limit_bootstrap)
    for array, expected in zip(got, theirs, strict=True):
        assert array.dtype == dtype
        np.testing.assert_allclose(array, expected, rtol=0, atol=16 * np.finfo(dtype).eps * np.abs(expected).max())


def test_amp_of_2_0(dtype):
    """V' of every step is given and never cut: AMP makes it 0 where that is wanted. Termination cuts the trace."""
    rng = np.random.default_rng(0)
    rewards, values, following = rng.normal(size=(3, 30, 4, 1)).astype(dtype)
    terminated = rng.random((30, 4, 1)) < 0.2
    advantages, carried = np.empty_like(rewards), np.zeros_like(rewards[0])
    for t in range(29, -1, -1):
        trace = dtype.type(0.9) * (~terminated[t]).astype(dtype)
        advantages[t] = carried = rewards[t] - values[t] + dtype.type(0.98) * (following[t] + trace * carried)
    wide = advantages.astype(np.float64)
    expected = advantages + values, (wide - wide.mean()) / (wide.std(ddof=1) + 1e-8)
    got = skrl._amp_of_2_0(
        rewards=rewards,
        terminated=terminated,
        values=values,
        next_values=following,
        discount_factor=0.98,
        lambda_coefficient=0.9,
    )
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=16 * np.finfo(dtype).eps * np.abs(theirs).max())
