"""The written-out loops are in float64; arrays of JAX need JAX, which tests/peers has."""

import numpy as np
import pytest

from fastgae.compat import rlax
from support.trajectories import COEFFICIENTS, assert_close, steps

pytestmark = [
    pytest.mark.parametrize("length", [1, 2, 7, 100]),
    pytest.mark.parametrize("gamma, lambda_", [*COEFFICIENTS, (0.99, "each")]),  # noqa: PT006
]


def trajectory(length, gamma, lambda_):
    s = steps((length, 1))
    s = s._make(array[:, 0] for array in s)
    mix = np.random.default_rng(length).random(length).astype(np.float32) if lambda_ == "each" else lambda_
    return s, np.float32(gamma) * ~s.terminated, mix


def backwards(step, length, last):
    """float32 of y_t = step(t, y_{t+1})."""
    result = np.empty(length)
    for t in range(length - 1, -1, -1):
        result[t] = last = step(t, last)
    return result.astype(np.float32)


def exact(*arrays):
    return [np.asarray(array, np.float64) for array in arrays]


def test_advantages(length, gamma, lambda_):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    values = np.append(s.values, s.last_values)
    got = rlax.truncated_generalized_advantage_estimation(s.rewards, discounts, mix, values)
    r, g, v = exact(s.rewards, discounts, values)
    trace = np.broadcast_to(mix, length)
    expected = backwards(lambda t, later: r[t] + g[t] * v[t + 1] - v[t] + g[t] * trace[t] * later, length, 0.0)
    assert_close(got, expected)


def test_returns(length, gamma, lambda_):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    r, g, v = exact(s.rewards, discounts, s.next_values)
    m = np.broadcast_to(mix, length)
    expected = backwards(lambda t, later: r[t] + g[t] * ((1 - m[t]) * v[t] + m[t] * later), length, v[-1])
    assert_close(rlax.lambda_returns(s.rewards, discounts, s.next_values, mix), expected)
    expected = backwards(lambda t, later: r[t] + g[t] * later, length, v[-1])
    assert_close(rlax.discounted_returns(s.rewards, discounts, s.next_values), expected)
    assert_close(rlax.discounted_returns(s.rewards, discounts, s.last_values), expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.5)], ids=str)
def test_vtrace(length, gamma, lambda_, masked, clips):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    mask = np.random.default_rng(0).random(length) < 0.7 if masked else None
    given = s.values, s.next_values, s.rewards, discounts, s.ratios, mix
    r, g, v, following, ratios = exact(s.rewards, discounts, s.values, s.next_values, s.ratios)
    m, learnable = np.broadcast_to(mix, length), np.ones(length, bool) if mask is None else mask

    def step(t, later):
        delta = min(ratios[t], clips[0]) * (r[t] + g[t] * following[t] - v[t])
        return delta + g[t] * min(ratios[t], 1.0) * m[t] * later if learnable[t] else later

    errors = backwards(step, length, 0.0)
    upcoming = np.append(m[:-1] * (errors + v)[1:] + (1 - m[:-1]) * v[1:], following[-1])
    estimates = (r + g * upcoming).astype(np.float32)
    advantages = (np.minimum(ratios, clips[1]) * (r + g * upcoming - v)).astype(np.float32)
    # Where nothing may be learned all errors are 0.
    assert_close(rlax.vtrace(*given, clips[0], sample_mask=mask), errors)
    got = rlax.vtrace_td_error_and_advantage(*given, *clips, sample_mask=mask)
    for array, expected in zip(got, (errors, advantages, estimates), strict=True):
        assert_close(array, expected)
    assert got._fields == ("errors", "pg_advantage", "q_estimate")
