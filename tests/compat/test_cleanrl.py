import numpy as np
import pytest

from fastgae.compat.cleanrl import compute_gae
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, steps


def the_loop(rewards, values, dones, next_value, next_done, gamma, gae_lambda):
    advantages = np.empty_like(rewards)
    later_value, later_done, later = next_value, next_done, 0
    for t in range(len(rewards) - 1, -1, -1):
        open_gate = 1.0 - later_done
        delta = rewards[t] + gamma * later_value * open_gate - values[t]
        advantages[t] = later = delta + gamma * gae_lambda * open_gate * later
        later_value, later_done = values[t], dones[t]
    return advantages, advantages + values


def arguments(size, dtype):
    s = steps(size, dtype)
    return s.rewards, s.values, s.shifted.astype(dtype), s.last_values, s.done[-1].astype(dtype)


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_bits(size, dtype, coefficients):
    given = arguments(size, dtype)
    for got, expected in zip(compute_gae(*given, *coefficients), the_loop(*given, *coefficients), strict=True):
        assert_same_bits(got, expected)


def test_tensors():
    torch = pytest.importorskip("torch")
    given = arguments((16, 4), np.float32)
    tensors = [torch.from_numpy(array) for array in given]
    tensors[3] = tensors[3].reshape(1, -1)  # as the script has it
    for got, expected in zip(compute_gae(*tensors), the_loop(*given, 0.99, 0.95), strict=True):
        assert isinstance(got, torch.Tensor)
        assert_same_bits(got.numpy(), expected)
