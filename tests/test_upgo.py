"""Upgoing returns: the definition step by step in float64, identities, and how gates and masks cut them."""

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS

SHAPE = (37, 5)


def rollout(seed=0, shape=SHAPE, dtype=np.float64):
    rng = np.random.default_rng(seed)
    numbers = {name: rng.normal(size=shape).astype(dtype) for name in ("rewards", "values", "next_values")}
    return {**numbers, **{name: rng.random(shape) < 0.1 for name in ("terminated", "truncated")}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_definition(backend):
    """With consistent next values, G_{t+1} takes the place of V'."""
    given = rollout()
    rewards, flags = given["rewards"], given["terminated"]
    longer = np.vstack([given["values"], np.ones((1, SHAPE[1]))])
    returns = fastgae.upgo(rewards, longer, flags, gamma=0.9, backend=backend).returns
    deltas = rewards + 0.9 * np.where(flags, 0.0, longer[1:]) - longer[:-1]
    exact = np.empty(SHAPE)
    for t in reversed(range(SHAPE[0])):
        following = longer[t + 1].copy()
        if t + 1 < SHAPE[0]:
            following = np.where(deltas[t + 1] >= 0, exact[t + 1], following)
        exact[t] = rewards[t] + 0.9 * np.where(flags[t], 0.0, following)
    np.testing.assert_allclose(returns, exact, rtol=1e-12, atol=1e-12)
    assert (returns != rewards + 0.9 * np.where(flags, 0.0, longer[1:])).any()


def test_it_is_gae_with_a_lambda_of_zero_or_one():
    given = rollout()
    deltas = fastgae.gae(**given, gae_lambda=0.0).advantages
    upward = np.vstack([deltas[1:] >= 0, np.zeros((1, SHAPE[1]))]).astype(float)
    np.testing.assert_array_equal(fastgae.upgo(**given).returns, fastgae.gae(**given, gae_lambda=upward).returns)


def test_rollouts_that_only_rise_give_discounted_returns():
    rewards, zeros = np.ones(9), np.zeros(9)
    returns = fastgae.upgo(rewards, zeros, zeros, last_values=0.0, gamma=0.5).returns
    np.testing.assert_array_equal(returns, fastgae.reverse_scan(rewards, 0.5))


def test_a_step_as_good_as_expected_is_followed():
    """delta is 0 at all steps but the last."""
    rewards, values = np.array([0.0, 0.0, 0.0, 5.0]), np.ones(4)
    returns = fastgae.upgo(rewards, values, np.array([0, 0, 0, 1]), last_values=0.0, gamma=1.0).returns
    np.testing.assert_array_equal(returns, 5.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_after_a_step_that_goes_worse_are_never_read(backend):
    """0 times NaN would be NaN: what is not followed must be cut, not weighted with 0."""
    zeros = np.zeros(4, np.float32)
    for rewards in ([1, -1, 3e38, 3e38], [1, -1, np.nan, 1], [1, -1, np.inf, 1], [1, np.nan, 1, 1]):
        returns = fastgae.upgo(
            np.array(rewards, np.float32), zeros, zeros, last_values=0.0, gamma=1.0, backend=backend
        ).returns
        assert returns[0] == 1
