from itertools import product

import numpy as np
import pytest

from fastgae.compat.labml import GAE
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, SIZES, steps


def the_loop(done, rewards, values, gamma, lambda_):
    advantages = np.empty(rewards.shape, np.float32)
    later, later_value = 0, values[:, -1]
    for t in range(rewards.shape[1] - 1, -1, -1):
        open_gate = 1.0 - done[:, t]
        delta = rewards[:, t] + gamma * (later_value * open_gate) - values[:, t]
        later = delta + gamma * lambda_ * (later * open_gate)
        advantages[:, t], later_value = later, values[:, t]
    return advantages


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_bits(size, dtype):
    s = steps(size, dtype)
    values = np.vstack([s.values, s.last_values[None]]).T.copy()
    for coefficients, flags in product(COEFFICIENTS, ["bool", "uint8", "float32", "float64"]):
        done, rewards = s.done.T.astype(flags), s.rewards.T.copy()
        got = GAE(size[1], size[0], *coefficients)(done, rewards, values)
        assert_same_bits(got, the_loop(done, rewards, values, *coefficients), f"{coefficients}, {flags}:")


def test_called_by_name_as_the_original():
    gae = GAE(n_workers=1, worker_steps=2, gamma=0.5, lambda_=1.0)
    got = gae(done=np.zeros((1, 2)), rewards=np.ones((1, 2)), values=np.array([[0.0, 0.0, 4.0]]))
    assert_same_bits(got, np.array([[2.5, 3.0]], np.float32))


def test_another_shape_is_an_error():
    with pytest.raises(ValueError, match="rewards"):
        GAE(2, 3, 0.99, 0.95)(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 3)))
