import numpy as np
import pytest

from fastgae.compat.pufferlib import compute_puff_advantage
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, steps


def the_loop(values, rewards, terminals, ratio, advantages, *coefficients):
    """Every number float32, as in the kernel; the last column is not touched."""
    gamma, gae_lambda, rho_clip, c_clip = (np.float32(number) for number in coefficients)
    result, later = advantages.copy(), np.float32(0)
    for t in range(values.shape[1] - 2, -1, -1):
        open_gate = np.float32(1) - terminals[:, t + 1]
        rho, c = np.minimum(ratio[:, t], rho_clip), np.minimum(ratio[:, t], c_clip)
        delta = rho * (rewards[:, t + 1] + gamma * values[:, t + 1] * open_gate - values[:, t])
        result[:, t] = later = delta + gamma * gae_lambda * c * later * open_gate
    return result


def arguments(size):
    """Each row holds the reward and the flag of the step before it."""
    s = steps(size)
    rewards = np.vstack([np.zeros_like(s.rewards[:1]), s.rewards[:-1]])
    given = s.values, rewards, s.shifted, s.ratios, np.full(size, 7, np.float32)
    return [np.ascontiguousarray(array.T) for array in given]


@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.3), (np.inf, 1.0)], ids=str)
@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_bits(size, coefficients, clips):
    given = arguments(size)
    expected = the_loop(*given, *coefficients, *clips)
    got = compute_puff_advantage(*given, *coefficients, *clips)
    assert got is given[4]
    assert_same_bits(got, expected)


def test_tensors():
    torch = pytest.importorskip("torch")
    given = arguments((16, 4))
    expected = the_loop(*given, 0.99, 0.95, 1.0, 1.0)
    tensors = [torch.from_numpy(array) for array in given]
    got = compute_puff_advantage(*tensors, 0.99, 0.95, 1.0, 1.0)
    assert got is tensors[4]
    assert_same_bits(got.numpy(), expected)
