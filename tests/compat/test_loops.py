"""Functions of compat beside loops that are in no package, written out; tests/peers has what the libraries have."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.compat import cleanrl, envpool, paper2code, spinningup
from loops import environments
from support.cases import assert_same_bits
from support.compat_calls import CALLS, TORCH_CALLS, given_as, of_numpy
from support.trajectories import COEFFICIENTS, steps


def scan(terms, decay, last=0.0):
    """Return y_t = terms_t + decay_t y_{t+1}; ``last`` is y after the last step."""
    decay, result = np.broadcast_to(np.asarray(decay, terms.dtype), terms.shape), np.empty_like(terms)
    for t in reversed(range(len(terms))):
        result[t] = last = terms[t] + decay[t] * last
    return result


def test_cleanrl(dtype):
    given = given_as(of_numpy, *CALLS["cleanrl"][1:], [dtype.name])
    flags = {name: given[name].astype(dtype) for name in ("dones", "next_done")}
    assert given["dones"].any()
    for settings in ({}, {"gamma": 0.9, "gae_lambda": 0.8}):
        expected = environments.cleanrl(**{**given, **flags, "gamma": 0.99, "gae_lambda": 0.95, **settings})
        np.testing.assert_array_equal(cleanrl.compute_gae(**given, **settings), expected)


def of_paper2code(
    rewards, values, terminateds, truncateds=False, gamma=0.99, lam=0.95, advantage_norm="global", eps=1e-8
):  # fmt: skip
    rewards, values, gate = (each.reshape(len(each), -1) for each in (rewards, values, ~terminateds | truncateds))
    advantages = scan(rewards + gamma * values[1:] * gate - values[:-1], gamma * lam * gate)
    wide, axis = advantages.astype(np.float64), 0 if advantage_norm == "per_env" else None
    normalized = (wide - wide.mean(axis, keepdims=True)) / (wide.std(axis, keepdims=True) + eps)
    norm = advantages if advantage_norm == "none" else normalized.astype(advantages.dtype)
    return norm, advantages + values[:-1]


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("paper2code")])
def test_paper2code(name):
    given = given_as(of_numpy, *CALLS[name][1:], ["float32"])
    for settings in ({}, {"advantage_norm": "none", "gamma": 0.9, "lam": 0.8}, {"eps": 0.5}):
        expected = of_paper2code(**{**given, **settings})
        np.testing.assert_array_equal(paper2code.compute_gae(**{**given, **settings}), expected)


# The defaults of the libraries' functions, by parameter; TRL's gamma is 1.
DEFAULTS = (
    dict.fromkeys(("gamma", "discount", "discount_factor"), 0.99)
    | dict.fromkeys(("gae_lambda", "lam", "lambda_coefficient"), 0.95)
    | dict.fromkeys(("lambda_", "lambda_t", "alpha", "alpha_", "rho_thresh", "c_thresh"), 1.0)
    | dict.fromkeys(("clip_rho_threshold", "clip_pg_rho_threshold"), 1.0)
    | dict.fromkeys(("truncateds", "terminated", "sample_mask", "rolling_gamma"))
    | dict.fromkeys(("time_limit_bootstrap", "whiten_rewards"), False)
    | {"advantage_norm": "global", "eps": 1e-8, "normalize_advantage": True, "time_dim": -2}
)


def test_defaults():
    for name, (function, *_) in {**CALLS, **TORCH_CALLS}.items():
        expected = DEFAULTS | ({"gamma": 1.0} if name.startswith("trl") else {})
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty and parameter.name != "stop_target_gradients":
                assert parameter.default == expected[parameter.name], f"{name}: {parameter}"


def of_envpool(gamma, gae_lambda, value, reward, done, env_id, numenv):
    """The next step of an env is found by its id."""
    returns, advantages, mask = (np.empty(value.shape) for _ in range(3))
    later = {}  # of each env: value and advantage of its step that was seen last
    for t in reversed(range(len(value))):
        for b, env in enumerate(env_id[t]):
            next_value, next_advantage = later.get(env, (0.0, 0.0))
            alive = 0.0 if done[t, b] else 1.0
            delta = float(reward[t, b] - value[t, b]) + gamma * next_value * alive
            advantages[t, b] = delta + gamma * gae_lambda * alive * next_advantage
            returns[t, b] = advantages[t, b] + value[t, b]
            mask[t, b] = done[t, b] or env in later
            later[env] = float(value[t, b]), advantages[t, b]
    return returns, advantages, mask


# (batches, envs in each, envs)
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 3, 3), (40, 4, 9), (33, 8, 64), (3, 2, 50)], ids=str)
def test_envpool(size, dtype):
    batches, batch, envs = size
    rng = np.random.default_rng(size)
    ids = np.array([rng.choice(envs, batch, replace=False) for _ in range(batches)], np.int32)
    value, reward = rng.normal(size=(2, batches, batch)).astype(dtype)
    given = 0.99, 0.95, value, reward, rng.random((batches, batch)) < 0.2, ids, envs
    got, expected = envpool.compute_gae(*given), of_envpool(*given)
    for array, theirs in zip(got, expected, strict=True):
        assert array.dtype == theirs.dtype
        np.testing.assert_allclose(array, theirs, rtol=0, atol=8 * np.finfo(dtype).eps * np.abs(theirs).max())
    assert np.array_equal(got[2], expected[2])


def test_discount_cumsum(dtype):
    for length in (0, 1, 7, 100):
        x = np.random.default_rng(length).normal(size=length).astype(dtype)
        assert_same_bits(spinningup.discount_cumsum(x, 0.97), scan(x.astype(np.float64), 0.97))


@pytest.mark.parametrize("number", [float, np.float32, np.array])
def test_finish_path(number):
    """A path at a time, as episodes end; a Python number makes the deltas float64, an array leaves them float32."""
    s = steps((100, 1))
    rewards, values = s.rewards[:, 0], s.values[:, 0]
    for gamma, lam in COEFFICIENTS:
        buffer = SimpleNamespace(rew_buf=rewards, val_buf=values, ptr=0, path_start_idx=0, gamma=gamma, lam=lam)
        buffer.adv_buf, buffer.ret_buf = (np.full(100, np.nan, np.float32) for _ in range(2))
        start = 0
        for t in np.flatnonzero(s.done[:, 0] | (np.arange(100) == 99)):
            last = 0 if s.terminated[t, 0] else number(s.next_values[t, 0])
            buffer.ptr = t + 1
            spinningup.finish_path(buffer, *([last] if last else []))  # a path that terminated is the default
            path, dtype = slice(start, t + 1), getattr(last, "dtype", np.float64)
            r, v = (np.array([*array[path], last], dtype) for array in (rewards, values))
            deltas = (r[:-1] + gamma * v[1:] - v[:-1]).astype(np.float64)
            assert_same_bits(buffer.adv_buf[path], scan(deltas, gamma * lam).astype(np.float32))
            assert_same_bits(buffer.ret_buf[path], scan(r.astype(np.float64), gamma)[:-1].astype(np.float32))
            assert np.isnan(buffer.adv_buf[t + 1 :]).all()
            start = t + 1
            assert buffer.path_start_idx == start
