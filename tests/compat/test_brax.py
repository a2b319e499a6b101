import numpy as np
import pytest

from fastgae.compat.brax import compute_gae
from support.trajectories import COEFFICIENTS, SIZES, assert_close, steps


def the_loops(truncation, termination, rewards, values, bootstrap_value, lambda_, discount):
    """In float64."""
    kept, goes_on, r, v, last = (
        np.asarray(array, np.float64) for array in (1 - truncation, 1 - termination, rewards, values, bootstrap_value)
    )
    targets, advantages = np.empty_like(v), np.empty_like(v)
    following, target, later = last, last, 0.0
    for t in range(len(r) - 1, -1, -1):
        delta = kept[t] * (r[t] + discount * goes_on[t] * following - v[t])
        advantages[t] = kept[t] * (r[t] + discount * goes_on[t] * target - v[t])
        later = delta + discount * lambda_ * goes_on[t] * kept[t] * later
        targets[t] = target = v[t] + later
        following = v[t]
    return targets.astype(np.float32), advantages.astype(np.float32)


def arguments(size):
    s = steps(size)
    return s.truncated.astype(np.float32), s.terminated.astype(np.float32), s.rewards, s.values, s.last_values


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_agrees(size, coefficients):
    discount, lambda_ = coefficients
    given = arguments(size)
    for got, expected in zip(compute_gae(*given, lambda_, discount), the_loops(*given, lambda_, discount), strict=True):
        assert_close(got, expected)


def test_defaults():
    given = arguments((16, 4))
    for got, expected in zip(compute_gae(*given), the_loops(*given, 1.0, 0.99), strict=True):
        assert_close(got, expected)


def test_truncated_steps_are_dropped():
    given = arguments((33, 16))
    targets, advantages = compute_gae(*given)
    dropped = given[0] == 1
    assert (advantages[dropped] == 0).all()
    assert (targets[dropped] == given[3][dropped]).all()
