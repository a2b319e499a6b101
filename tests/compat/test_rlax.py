"""The written-out loops are in float64; arrays of JAX need JAX, which tests/peers has."""

from itertools import product

import numpy as np
import pytest

import fastgae
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


def test_vtrace(length, gamma, lambda_):
    for masked, clips, alpha in product([False, True], [(1.0, 1.0), (2.0, 0.5)], [1.0, 0.7, 0.0]):
        check_vtrace(length, gamma, lambda_, masked, clips, alpha)


def check_vtrace(length, gamma, lambda_, masked, clips, alpha):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    mask = np.random.default_rng(0).random(length) < 0.7 if masked else None
    given = s.values, s.next_values, s.rewards, discounts, s.ratios
    r, g, v, following, ratios = exact(s.rewards, discounts, s.values, s.next_values, s.ratios)
    m, learnable = np.broadcast_to(mix, length), np.ones(length, bool) if mask is None else mask

    def weights(clip):
        return (1 - alpha) * ratios + alpha * np.minimum(ratios, clip)

    def step(t, later):
        delta = weights(clips[0])[t] * (r[t] + g[t] * following[t] - v[t])
        return delta + g[t] * weights(1.0)[t] * m[t] * later if learnable[t] else later

    errors = backwards(step, length, 0.0)
    upcoming = np.append(m[:-1] * (errors + v)[1:] + (1 - m[:-1]) * v[1:], following[-1])
    estimates = (r + g * upcoming).astype(np.float32)
    advantages = (weights(clips[1]) * (r + g * upcoming - v)).astype(np.float32)
    # Where nothing may be learned all errors are 0.
    assert_close(rlax.leaky_vtrace(*given, alpha, mix, clips[0], sample_mask=mask), errors)
    got = rlax.leaky_vtrace_td_error_and_advantage(*given, alpha, mix, *clips, sample_mask=mask)
    for array, expected in zip(got, (errors, advantages, estimates), strict=True):
        assert_close(array, expected)
    assert got._fields == ("errors", "pg_advantage", "q_estimate")
    if alpha == 1:
        np.testing.assert_array_equal(rlax.vtrace(*given, mix, clips[0], sample_mask=mask), got.errors)
        without_leak = rlax.vtrace_td_error_and_advantage(*given, mix, *clips, sample_mask=mask)
        np.testing.assert_array_equal(without_leak, got)


@pytest.mark.parametrize("leaky", [0.0, 0.3, 1.0])
def test_vtrace_agrees_with_fastgae(length, gamma, lambda_, leaky):
    s, _, mix = trajectory(length, gamma, lambda_)
    following = np.append(s.values[1:], s.last_values)  # In an episode that goes on, V' is the next step's V.
    expected = fastgae.vtrace(
        s.rewards,
        s.values,
        np.zeros(length, bool),
        ratios=s.ratios,
        next_values=following,
        gamma=gamma,
        lambda_=mix,
        rho_clip=2.0,
        advantage_clip=0.5,
        leaky=leaky,
    )
    discounts = np.full(length, gamma, np.float32)
    given = s.values, following, s.rewards, discounts, s.ratios, 1 - leaky, mix, 2.0
    assert_close(rlax.leaky_vtrace(*given) + s.values, expected.returns)
    assert_close(rlax.leaky_vtrace_td_error_and_advantage(*given, 0.5).pg_advantage, expected.advantages)


def test_an_infinite_ratio_is_clipped(length, gamma, lambda_):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    ratios = np.maximum(s.ratios, 1)
    infinite = np.where(np.arange(length) % 2, ratios, np.inf).astype(np.float32)
    for function in (rlax.vtrace, rlax.vtrace_td_error_and_advantage):
        given = s.values, s.next_values, s.rewards, discounts
        expected = function(*given, ratios, lambda_=mix)
        np.testing.assert_array_equal(function(*given, infinite, lambda_=mix), expected)


def test_off_policy_returns(length, gamma, lambda_):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    traces = (np.broadcast_to(mix, length) * s.ratios).astype(np.float32)
    r, g, v, q, c = exact(s.rewards, discounts, s.next_values, s.values, traces)

    def step(t, later):
        return r[t] + g[t] * (v[t] + (c[t + 1] * (later - q[t + 1]) if t + 1 < length else 0.0))

    got = rlax.general_off_policy_returns_from_q_and_v(s.values[1:], s.next_values, s.rewards, discounts, traces[1:])
    assert_close(got, backwards(step, length, 0.0))


def test_retrace(length, gamma, lambda_):
    s, discounts, mix = trajectory(length, gamma, lambda_)
    rng = np.random.default_rng(length)
    before, after = rng.normal(size=(2, length, 3)).astype(np.float32)
    taken_before, taken = rng.integers(0, 3, (2, length))
    policy = rng.dirichlet(np.ones(3), length).astype(np.float32)
    behaviour = rng.random(length).astype(np.float32)
    r, g, p, q, mu = exact(s.rewards, discounts, policy, after, behaviour)
    v = [sum(p[t, a] * q[t, a] for a in range(3)) for t in range(length)]
    m = np.broadcast_to(mix, length)

    def returns(c):
        def step(t, later):
            last = t + 1 == length
            return r[t] + g[t] * (v[t] if last else v[t] - c(t) * q[t, taken[t]] + c(t) * later)

        return backwards(step, length, 0.0)

    traces = (m * s.ratios).astype(np.float32)
    got = rlax.general_off_policy_returns_from_action_values(after, taken, s.rewards, discounts, traces, policy)
    assert_close(got, returns(lambda t: np.float64(traces[t])))
    for eps in (1e-8, 0.5):
        targets = returns(lambda t, eps=eps: m[t] * min(1.0, p[t, taken[t]] / (mu[t] + eps)))
        got = rlax.retrace(before, after, taken_before, taken, s.rewards, discounts, policy, behaviour, mix, eps)
        assert_close(got, targets - [before[t, taken_before[t]] for t in range(length)])
    with pytest.raises(IndexError):
        rlax.retrace(before, after, taken_before + 3, taken, s.rewards, discounts, policy, behaviour, mix)


def test_retrace_agrees_with_fastgae(length, gamma, lambda_):
    s, _, mix = trajectory(length, gamma, lambda_)
    targets = fastgae.retrace(
        s.rewards,
        s.values,
        np.zeros(length, bool),
        next_values=s.next_values,
        ratios=s.ratios,
        gamma=gamma,
        lambda_=mix,
    )
    discounts, later_mix = np.full(length, gamma, np.float32), mix[1:] if np.ndim(mix) else mix
    traces = (later_mix * np.minimum(s.ratios[1:], 1)).astype(np.float32)
    given = s.values[1:], s.next_values, s.rewards, discounts
    assert_close(rlax.general_off_policy_returns_from_q_and_v(*given, traces), targets)
    errors = rlax.retrace_continuous(s.values, *given, np.log(s.ratios[1:]), later_mix)
    assert_close(errors + s.values, targets)


def test_a_ratio_beyond_the_largest_float_is_clipped(length, gamma, lambda_):
    s, discounts, _ = trajectory(length, gamma, lambda_)
    given = s.values, s.values[1:], s.next_values, s.rewards, discounts
    expected = rlax.retrace_continuous(*given, np.zeros(length - 1, np.float32), 0.9)
    beyond = np.full(length - 1, 1e3, np.float32)
    np.testing.assert_array_equal(rlax.retrace_continuous(*given, beyond, 0.9), expected)
