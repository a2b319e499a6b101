"""The written-out loops run in float32 NumPy; the functions are given arrays, and once tensors."""

import numpy as np
import pytest

from fastgae.compat import torchrl
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, assert_close, steps

pytestmark = pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
sizes = pytest.mark.parametrize("size", SIZES, ids=str)


def the_gae(gamma, lmbda, values, next_values, rewards, done, terminated):
    advantages, later = np.empty_like(rewards), 0
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + gamma * (1 - terminated[t].astype(np.float32)) * next_values[t] - values[t]
        advantages[t] = later = delta + gamma * lmbda * (1 - done[t].astype(np.float32)) * later
    return advantages, advantages + values


def the_returns(gamma, lmbda, next_values, rewards, done, terminated):
    returns, following = np.empty_like(rewards), np.where(terminated, np.float32(0), next_values)
    later = following[-1]
    for t in range(len(rewards) - 1, -1, -1):
        later = np.where(done[t], following[t], later)
        returns[t] = later = rewards[t] + gamma * ((1 - lmbda) * following[t] + lmbda * later)
    return returns


def the_vtrace(gamma, ratios, values, next_values, rewards, done, terminated, rho_thresh, c_thresh):
    targets, advantages = np.empty_like(rewards), np.empty_like(rewards)
    later, upcoming = 0, next_values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        discount = gamma * (1 - terminated[t].astype(np.float32))
        rho, c = np.minimum(ratios[t], np.float32(rho_thresh)), np.minimum(ratios[t], np.float32(c_thresh))
        upcoming = np.where(done[t], next_values[t], upcoming)
        advantages[t] = rho * (rewards[t] + discount * upcoming - values[t])
        delta = rho * (rewards[t] + discount * next_values[t] - values[t])
        later = delta + gamma * (1 - done[t].astype(np.float32)) * c * later
        targets[t] = upcoming = later + values[t]
    return advantages, targets


@sizes
@pytest.mark.parametrize("vec", ["", "vec_"])
def test_gae(size, coefficients, vec):
    s = steps(size)
    given = *coefficients, s.values, s.next_values, s.rewards, s.done
    function = getattr(torchrl, vec + "generalized_advantage_estimate")
    for got, expected in zip(function(*given, s.terminated), the_gae(*given, s.terminated), strict=True):
        assert_same_bits(got, expected)
    for got, expected in zip(function(*given), the_gae(*given, s.done), strict=True):
        assert_same_bits(got, expected)


@sizes
def test_td_lambda(size, coefficients):
    s = steps(size)
    given = s.next_values, s.rewards, s.done, s.terminated
    expected = the_returns(*coefficients, *given)
    assert_close(torchrl.td_lambda_return_estimate(*coefficients, *given), expected)
    got = torchrl.td_lambda_advantage_estimate(*coefficients, s.values, *given)
    assert_close(got, expected - s.values)


@sizes
@pytest.mark.parametrize("thresholds", [(1.0, 1.0), (2.0, 0.5)], ids=str)
def test_vtrace(size, coefficients, thresholds):
    torch = pytest.importorskip("torch")
    s = steps(size)
    log_pi, log_mu = (torch.from_numpy(array) for array in (np.log(s.ratios), s.rewards / 8))
    given = s.values, s.next_values, s.rewards, s.done, s.terminated
    ratios = (log_pi - log_mu).exp().numpy()
    tensors = [torch.from_numpy(array) for array in given]
    got = torchrl.vtrace_advantage_estimate(coefficients[0], log_pi, log_mu, *tensors, *thresholds)
    expected = the_vtrace(coefficients[0], ratios, *given, *thresholds)
    for tensor, array in zip(got, expected, strict=True):
        assert_same_bits(tensor.numpy(), array)


@sizes
def test_reward2go(size, coefficients):
    s, gamma = steps(size), coefficients[0]
    expected, later = np.empty_like(s.rewards), 0
    for t in range(size[0] - 1, -1, -1):
        expected[t] = later = s.rewards[t] + gamma * later * (1 - s.done[t].astype(np.float32))
    assert_close(torchrl.reward2go(s.rewards, s.done, gamma), expected)


def test_batches_and_other_time_dims(coefficients):
    torch = pytest.importorskip("torch")
    s = steps((9, 6))
    given = s.values, s.next_values, s.rewards, s.done, s.terminated
    expected = the_gae(*coefficients, *given)
    # (time, batch * features) -> (batch, time, features) and (batch, features, time)
    for time_dim, order in ((-2, (1, 0, 2)), (1, (1, 0, 2)), (-1, (1, 2, 0))):
        tensors = [torch.from_numpy(array.reshape(9, 3, 2).transpose(order).copy()) for array in given]
        got = torchrl.generalized_advantage_estimate(*coefficients, *tensors, time_dim=time_dim)
        for tensor, array in zip(got, expected, strict=True):
            assert_same_bits(tensor.numpy(), array.reshape(9, 3, 2).transpose(order))


def test_gamma_of_each_step(coefficients):
    torch = pytest.importorskip("torch")
    s, lmbda = steps((9, 2)), coefficients[1]
    gamma = np.random.default_rng(0).random((9, 2)).astype(np.float32)
    given = s.values, s.next_values, s.rewards, s.done, s.terminated
    got = torchrl.generalized_advantage_estimate(torch.from_numpy(gamma), lmbda, *map(torch.from_numpy, given))
    later, expected = np.zeros(2, np.float32), np.empty_like(s.rewards)
    for t in range(8, -1, -1):
        delta = s.rewards[t] + gamma[t] * ~s.terminated[t] * s.next_values[t] - s.values[t]
        expected[t] = later = delta + gamma[t] * lmbda * ~s.done[t] * later
    assert_close(got[0].numpy(), expected, 1e-6)


def test_rolling_gamma(coefficients):
    s = steps((4, 2))
    with pytest.raises(ValueError, match="rolling_gamma"):
        torchrl.td_lambda_return_estimate(*coefficients, s.next_values, s.rewards, s.done, rolling_gamma=False)
