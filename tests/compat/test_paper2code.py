import numpy as np
import pytest

from fastgae.compat.paper2code import compute_gae
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, assert_close, steps


def the_loop(rewards, values, terminated, truncated, gamma, lam):
    advantages, later = np.empty_like(rewards), 0
    for t in range(len(rewards) - 1, -1, -1):
        open_gate = np.where(truncated[t], 1.0, 1.0 - terminated[t]).astype(np.float32)
        delta = rewards[t] + gamma * values[t + 1] * open_gate - values[t]
        advantages[t] = later = delta + gamma * lam * open_gate * later
    return advantages, advantages + values[:-1]


def normalized(advantages, axis, eps=1e-8):
    exact = advantages.astype(np.float64)
    mean, std = exact.mean(axis, keepdims=True), exact.std(axis, keepdims=True)
    return ((exact - mean) / (std + eps)).astype(advantages.dtype)


def arguments(size, dtype=np.float32):
    """Some steps both terminate and are truncated."""
    s = steps(size, dtype)
    both = np.random.default_rng(1).random(size) < 0.1
    return s.rewards, np.vstack([s.values, s.last_values[None]]), s.terminated | both, s.truncated | both


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_bits(size, coefficients):
    given = arguments(size)
    got = compute_gae(*given, *coefficients, advantage_norm="none")
    for array, expected in zip(got, the_loop(*given, *coefficients), strict=True):
        assert_same_bits(array, expected)
    without = compute_gae(*given[:3], None, *coefficients, "none")
    for array, expected in zip(without, the_loop(*given[:3], np.zeros(size), *coefficients), strict=True):
        assert_same_bits(array, expected)


@pytest.mark.parametrize(("advantage_norm", "axis"), [("global", None), ("per_env", 0)])
def test_normalized(advantage_norm, axis):
    given = arguments((64, 5))
    got, returns = compute_gae(*given, advantage_norm=advantage_norm)
    advantages, expected = the_loop(*given, 0.99, 0.95)
    assert_close(got, normalized(advantages, axis), 1e-6)
    assert_same_bits(returns, expected)
    assert_close(compute_gae(*given, 0.99, 0.95, advantage_norm, 0.5)[0], normalized(advantages, axis, 0.5), 1e-6)


def test_global_is_the_default():
    given = arguments((16, 4))
    assert_same_bits(compute_gae(*given)[0], compute_gae(*given, advantage_norm="global")[0])


def test_one_dimension_becomes_a_column():
    given = [array[:, 0] for array in arguments((16, 1))]
    for array, expected in zip(compute_gae(*given), compute_gae(*arguments((16, 1))), strict=True):
        assert_same_bits(array, expected)


def test_another_norm_is_an_error():
    with pytest.raises(ValueError, match="advantage_norm"):
        compute_gae(*arguments((4, 2)), advantage_norm="batch")


def test_tensors_without_gradients():
    torch = pytest.importorskip("torch")
    given = arguments((16, 4))
    rewards, values, terminated, truncated = (torch.from_numpy(array) for array in given)
    got = compute_gae(rewards, values.requires_grad_(), terminated, truncated.int(), advantage_norm="none")
    for tensor, expected in zip(got, the_loop(*given, 0.99, 0.95), strict=True):
        assert not tensor.requires_grad
        assert_same_bits(tensor.numpy(), expected)
