from types import SimpleNamespace

import numpy as np

from fastgae.compat.spinningup import discount_cumsum, finish_path
from support.cases import assert_same_bits
from support.trajectories import COEFFICIENTS, steps


def the_sum(x, discount):
    result, later = np.empty(len(x)), 0.0
    for t in range(len(x) - 1, -1, -1):
        result[t] = later = float(x[t]) + discount * later
    return result


def test_discount_cumsum(dtype):
    for length in (0, 1, 7, 100):
        x = np.random.default_rng(length).normal(size=length).astype(dtype)
        assert_same_bits(discount_cumsum(x, 0.97), the_sum(x, 0.97))


def test_finish_path():
    """A path at a time, as episodes end; a Python number makes the deltas float64, an array leaves them float32."""
    for (gamma, lam), number in [(each, number) for each in COEFFICIENTS for number in (float, np.float32, np.array)]:
        s = steps((100, 1))
        rewards, values = s.rewards[:, 0], s.values[:, 0]
        buffer = SimpleNamespace(rew_buf=rewards, val_buf=values, ptr=0, path_start_idx=0, gamma=gamma, lam=lam)
        buffer.adv_buf, buffer.ret_buf = (np.full(100, np.nan, np.float32) for _ in range(2))
        start = 0
        for t in np.flatnonzero(s.done[:, 0] | (np.arange(100) == 99)):
            last = 0 if s.terminated[t, 0] else number(s.next_values[t, 0])
            buffer.ptr = t + 1
            finish_path(buffer, *([last] if last else []))  # a path that terminated is the default
            path = slice(start, t + 1)
            dtype = np.asarray(last).dtype if isinstance(last, np.ndarray | np.generic) else np.float64
            r, v = (np.array([*array[path], last], dtype) for array in (rewards, values))
            expected = the_sum(r[:-1] + gamma * v[1:] - v[:-1], gamma * lam)
            assert_same_bits(buffer.adv_buf[path], expected.astype(np.float32))
            assert_same_bits(buffer.ret_buf[path], the_sum(r, gamma)[:-1].astype(np.float32))
            assert np.isnan(buffer.adv_buf[t + 1 :]).all()
            start = t + 1
            assert buffer.path_start_idx == start
