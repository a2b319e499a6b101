"""TRL's and OpenRLHF's loops, written out: tokens out of the mask are zeros, across which A is discounted."""

import numpy as np
import pytest

from fastgae.compat.trl import compute_advantages, get_advantages_and_returns, grpo_advantages
from support.cases import assert_same_bits
from support.kinds import KINDS, called

SHAPES = [(1, 2), (3, 5), (8, 40), (5, 300)]  # responses, tokens


def responses(shape, dtype):
    rng = np.random.default_rng(shape)
    values, rewards = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    mask = rng.random(shape) < 0.7
    mask[0, :2] = True
    return values, rewards, mask


def loop(values, rewards, gamma, lam):
    advantages = np.empty_like(rewards)
    following, carried = np.zeros_like(values[:, 0]), np.zeros_like(values[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * following - values[:, t]
        carried = delta + gamma * lam * carried
        advantages[:, t], following = carried, values[:, t]
    return advantages, advantages + values


def whitened(array, mask):
    """In float64, and the mean."""
    kept = array[mask].astype(np.float64)
    variance = ((kept - kept.mean()) ** 2).sum() / (len(kept) - 1)
    return (array - kept.mean()) / np.sqrt(variance + 1e-8), kept.mean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_trl(shape, dtype, kind):
    values, rewards, mask = responses(shape, dtype)
    got = called(kind, compute_advantages, values, rewards, mask.astype(np.int64), gamma=0.99, lam=0.9)
    zeroed = values * mask.astype(dtype)
    advantages, returns = loop(zeroed, rewards * mask.astype(dtype), 0.99, 0.9)
    assert_same_bits(got[0], zeroed)
    assert_same_bits(got[2], returns)
    assert got[1].dtype == dtype
    np.testing.assert_allclose(got[1], whitened(advantages, mask)[0], rtol=2 * np.finfo(dtype).eps, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_trl_whitens_rewards(shape, dtype, kind):
    values, rewards, mask = responses(shape, dtype)
    got = called(kind, compute_advantages, values, rewards, mask, whiten_rewards=True)
    zeroed, mean = whitened(rewards * mask, mask)
    zeroed = (zeroed + mean).astype(dtype)  # of tokens out of the mask too, as TRL leaves them
    advantages, returns = loop(values * mask, zeroed, 1.0, 0.95)
    for array, expected in zip(got[1:], (whitened(advantages, mask)[0], returns), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(array, expected, rtol=0, atol=16 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_openrlhf(shape, dtype, masked, kind):
    values, rewards, mask = responses(shape, dtype)
    got = called(kind, get_advantages_and_returns, values, rewards, mask if masked else None, 0.99, 0.95)
    kept = (mask if masked else np.ones_like(mask)).astype(dtype)
    for array, expected in zip(got, loop(kept * values, kept * rewards, 0.99, 0.95), strict=True):
        assert_same_bits(array, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_grpo(dtype, kind):
    rewards = np.random.default_rng(0).normal(size=24).astype(dtype)
    rewards[[3, 8, 9, 10, 12, 13, 14, 15]] = np.nan  # one scored completion of the third group, and none of the fourth
    rows = rewards.reshape(-1, 4).astype(np.float64)
    mean = np.array([row[~np.isnan(row)].mean() if (~np.isnan(row)).any() else np.nan for row in rows])
    std = np.array([row[~np.isnan(row)].std(ddof=1) if (~np.isnan(row)).sum() > 1 else np.nan for row in rows])
    centered = rows - mean[:, np.newaxis]
    by_group, by_batch = (centered / (each + 1e-4) for each in (std[:, np.newaxis], np.nanstd(rows, ddof=1)))
    scales = {"group": by_group, True: by_group, "batch": by_batch, "none": centered, False: centered}
    for scale_rewards, expected in scales.items():
        (got,) = called(kind, grpo_advantages, rewards, 4, scale_rewards)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, np.nan_to_num(expected).ravel(), rtol=8 * np.finfo(dtype).eps, atol=1e-7)
    with pytest.raises(ValueError, match="num_generations must divide the number of rewards, 24, got 5"):
        grpo_advantages(rewards, 5)
