from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.compat.stable_baselines3 import compute_returns_and_advantage
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, steps


def the_loop(buffer, last_values, dones):
    advantages = np.empty_like(buffer.rewards)
    open_gate, later_values, later = 1.0 - dones.astype(np.float32), last_values.flatten(), 0
    for t in range(len(buffer.rewards) - 1, -1, -1):
        delta = buffer.rewards[t] + buffer.gamma * later_values * open_gate - buffer.values[t]
        advantages[t] = later = delta + buffer.gamma * buffer.gae_lambda * open_gate * later
        open_gate, later_values = 1.0 - buffer.episode_starts[t], buffer.values[t]
    return advantages, advantages + buffer.values


def rollout_buffer(s, gamma, gae_lambda):
    """As it stands after collecting: a truncated step's reward has gamma V(final observation) in it."""
    return SimpleNamespace(
        rewards=s.rewards + np.float32(gamma) * s.next_values * s.truncated,
        values=s.values,
        episode_starts=s.shifted,
        advantages=np.full_like(s.rewards, np.nan),
        returns=np.full_like(s.rewards, np.nan),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_bits(size, coefficients):
    s = steps(size)
    buffer = rollout_buffer(s, *coefficients)
    advantages = buffer.advantages
    assert compute_returns_and_advantage(buffer, s.last_values[:, None], s.done[-1]) is None
    assert buffer.advantages is advantages
    expected = the_loop(buffer, s.last_values, s.done[-1])
    assert_same_bits(buffer.advantages, expected[0])
    assert_same_bits(buffer.returns, expected[1])


def test_as_a_method_and_with_a_tensor():
    torch = pytest.importorskip("torch")
    s = steps((8, 3))
    given = rollout_buffer(s, 0.99, 0.95)
    cls = type("Buffer", (), {"compute_returns_and_advantage": compute_returns_and_advantage})
    buffer = cls()
    vars(buffer).update(vars(given))
    buffer.compute_returns_and_advantage(torch.from_numpy(s.last_values).requires_grad_(), dones=s.done[-1])
    assert_same_bits(buffer.advantages, the_loop(given, s.last_values, s.done[-1])[0])
