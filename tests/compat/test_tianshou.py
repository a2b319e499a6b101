from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.compat.tianshou import _gae, compute_episodic_return
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, steps

LENGTHS = pytest.mark.parametrize("length", [1, 2, 7, 100])


def the_loop(values, next_values, rewards, ends, gamma, gae_lambda):
    """In float64, as Numba promotes."""
    values, next_values, rewards = (array.astype(np.float64) for array in (values, next_values, rewards))
    advantages, later = np.empty(len(rewards)), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + next_values[t] * gamma - values[t]
        advantages[t] = later = delta + (1.0 - ends[t]) * (gamma * gae_lambda) * later
    return advantages


def episodes(length, dtype):
    s = steps((length, 1), dtype)
    return s._make(array[:, 0] for array in s)


def buffer_of(s, unfinished):
    """The batch in reverse order in a buffer that is larger."""
    indices = np.arange(len(s.rewards))[::-1] + 2
    terminated = np.zeros(len(s.rewards) + 2, bool)
    terminated[indices] = s.terminated
    batch = SimpleNamespace(rew=s.rewards.astype(np.float64), terminated=s.terminated, truncated=s.truncated)
    return batch, SimpleNamespace(terminated=terminated, unfinished_index=lambda: indices[unfinished]), indices


@LENGTHS
@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
def test_gae(length, dtype, coefficients):
    s = episodes(length, dtype)
    following = s.next_values * ~s.terminated
    got = _gae(s.values, following, s.rewards, s.done, *coefficients)
    assert_same_bits(got, the_loop(s.values, following, s.rewards, s.done, *coefficients))


@LENGTHS
@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
def test_episodic_return(length, dtype, coefficients):
    s = episodes(length, dtype)
    batch, buffer, indices = buffer_of(s, [length // 2, length - 1])
    ends = s.done.copy()
    ends[[length // 2, length - 1]] = True
    advantages = the_loop(s.values, s.next_values * ~s.terminated, s.rewards, ends, *coefficients)
    got = compute_episodic_return(batch, buffer, indices, s.next_values, s.values, *coefficients)
    assert_same_bits(got[0], advantages + s.values)
    assert_same_bits(got[1], advantages)


def test_values_that_are_not_given():
    s = episodes(20, np.float64)
    batch, buffer, indices = buffer_of(s, [19])
    following = s.next_values * ~s.terminated
    got = compute_episodic_return(batch, buffer, indices, s.next_values)
    expected = compute_episodic_return(batch, buffer, indices, s.next_values, np.roll(following, 1))
    assert_same_bits(got[1], expected[1])
    returns, advantages = compute_episodic_return(batch, buffer, indices, gamma=0.9, gae_lambda=1.0)
    zeros, ends = np.zeros(20), s.done | (np.arange(20) == 19)
    assert_same_bits(returns, the_loop(zeros, zeros, s.rewards, ends, 0.9, 1.0))
    assert_same_bits(advantages, returns)
    with pytest.raises(ValueError, match="gae_lambda"):
        compute_episodic_return(batch, buffer, indices)


def test_tensors():
    torch = pytest.importorskip("torch")
    s = episodes(20, np.float32)
    batch, buffer, indices = buffer_of(s, [19])
    tensors = [torch.from_numpy(array)[:, None].requires_grad_() for array in (s.next_values, s.values)]
    got = compute_episodic_return(batch, buffer, indices, *tensors)
    expected = compute_episodic_return(batch, buffer, indices, s.next_values, s.values)
    assert_same_bits(got[0], expected[0])
    assert isinstance(got[0], np.ndarray)
