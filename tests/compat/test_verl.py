"""verl's loop, written out: a token out of the mask hands on what it was given, and is written with it."""

import numpy as np
import pytest

from fastgae.compat.verl import (
    compute_gae_advantage_return,
    compute_grpo_outcome_advantage,
    compute_reinforce_plus_plus_baseline_outcome_advantage,
    compute_rloo_outcome_advantage,
)
from support.cases import assert_same_bits
from support.kinds import KINDS, called

SHAPES = [(1, 2), (3, 5), (8, 40), (5, 300)]  # responses, tokens


def responses(shape, dtype, flags=np.int64):
    """Tokens of several turns, with what the policy did not write between them and after the last."""
    rng = np.random.default_rng(shape)
    rewards, values = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    mask = (rng.random(shape) < 0.7) & (np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1)))
    mask[0, :2] = True
    return rewards, values, mask.astype(flags)


def loop(rewards, values, mask, gamma, lam):
    next_values, carried = np.zeros_like(values[:, 0]), np.zeros_like(values[:, 0])
    advantages = np.empty_like(rewards)
    for t in range(rewards.shape[1] - 1, -1, -1):
        written = mask[:, t] == 1
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        carried = np.where(written, delta + gamma * lam * carried, carried)
        next_values = np.where(written, values[:, t], next_values)
        advantages[:, t] = carried
    kept = advantages[mask == 1].astype(np.float64)
    variance = ((kept - kept.mean()) ** 2).sum() / (len(kept) - 1)
    return (advantages - kept.mean()) / np.sqrt(variance + 1e-8), advantages + values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_returns_same_bits_and_advantages_within_rounding(shape, dtype, kind):
    arrays = responses(shape, dtype)
    advantages, returns = called(kind, compute_gae_advantage_return, *arrays, 0.99, 0.95)
    expected_advantages, expected_returns = loop(*arrays, 0.99, 0.95)
    assert_same_bits(returns, expected_returns)
    assert advantages.dtype == dtype
    np.testing.assert_allclose(advantages, expected_advantages, rtol=2 * np.finfo(dtype).eps, atol=1e-15)


def test_bfloat16_is_computed_in_float32():
    torch = pytest.importorskip("torch")
    narrow = [torch.from_numpy(array).to(torch.bfloat16) for array in responses((4, 20), np.float32)]
    wide = [tensor.float().numpy() for tensor in narrow]
    got = compute_gae_advantage_return(*narrow, 0.99, 0.95)
    for tensor, array in zip(got, compute_gae_advantage_return(*wide, 0.99, 0.95), strict=True):
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, torch.from_numpy(array).to(torch.bfloat16))


@pytest.mark.parametrize("tokens", [0, 1])
def test_too_few_tokens_to_whiten(tokens):
    rewards, values, mask = responses((2, 4), np.float32)
    mask[...] = 0
    mask[0, :tokens] = 1
    with pytest.raises(ValueError, match=f"at least two steps in the mask, got {tokens}"):
        compute_gae_advantage_return(rewards, values, mask, 1.0, 1.0)


def groups_loop(scores, index, eps, scaled, leave_one_out):
    """verl's loops over responses, in float64."""
    result = np.empty(len(scores))
    for i, score in enumerate(scores.astype(np.float64)):
        group = scores[index == index[i]].astype(np.float64)
        if len(group) == 1:
            result[i] = score / (1 + eps) if scaled else score
        elif leave_one_out:
            result[i] = score * len(group) / (len(group) - 1) - group.mean() * len(group) / (len(group) - 1)
        else:
            result[i] = (score - group.mean()) / ((group.std(ddof=1) + eps) if scaled else 1)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_groups(dtype, kind):
    rewards, _, mask = responses((12, 20), dtype)
    index = np.array([f"prompt {number}" for number in (0, 1, 2, 0, 1, 0, 4, 4, 4, 1, 0, 3)], object)
    scores, rtol = rewards.sum(axis=1), 20 * np.finfo(dtype).eps
    for function, scaled, leave_one_out, given in (
        (compute_grpo_outcome_advantage, True, False, {"epsilon": 1e-3}),
        (compute_grpo_outcome_advantage, False, False, {"norm_adv_by_std_in_grpo": False}),
        (compute_rloo_outcome_advantage, False, True, {}),
    ):
        expected = groups_loop(scores, index, 1e-3, scaled, leave_one_out)[:, np.newaxis] * mask
        advantages, returns = called(kind, function, rewards, mask, list(index), **given)
        assert advantages.dtype == dtype
        assert_same_bits(advantages, returns)
        np.testing.assert_allclose(advantages, expected, rtol=rtol, atol=rtol)
    centered = groups_loop(scores, index, 0, False, False)[:, np.newaxis] * mask
    kept = centered[mask == 1]
    expected = np.where(mask, (centered - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8), 0)
    got, _ = called(kind, compute_reinforce_plus_plus_baseline_outcome_advantage, rewards, mask, list(index))
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)
