"""Functions of compat beside the loops of their libraries, written out; tests/peers has the libraries' own."""

import inspect
import sys
from copy import deepcopy
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.compat import envpool, skrl, spinningup, stable_baselines3, verl
from support.cases import assert_same_bits, make_case
from support.compat_calls import CALLS, NUMPY_CALLS, STEPS, arrays_of, given_as, of_numpy

from .test_arguments import RESPONSES


def scan(terms, decay, last=0.0):
    """Return y_t = terms_t + decay_t y_{t+1}; ``last`` is y after the last step."""
    decay, result = np.broadcast_to(np.asarray(decay, terms.dtype), terms.shape), np.empty_like(terms)
    for t in reversed(range(len(terms))):
        result[t] = last = terms[t] + decay[t] * last
    return result


def gae(rewards, values, following, gamma, lam, bootstrap=1.0, trace=1.0):
    """Return the advantages; V' is ``following``, and the gates are 1 where they are open."""
    return scan(rewards + gamma * following * bootstrap - values, gamma * lam * trace)


def later(array, last):
    return np.concatenate([array[1:], np.reshape(last, array[:1].shape)])


def whitened(array, mask, shift_mean=True):
    exists = array[mask != 0].astype(np.float64)
    result = (array.astype(np.float64) - exists.mean()) / np.sqrt(exists.var(ddof=1) + 1e-8)
    return (result if shift_mean else result + exists.mean()).astype(array.dtype)


def normalized(array, axis=None, ddof=0, eps=1e-8):
    wide = array.astype(np.float64)
    std = wide.std(axis, keepdims=True, ddof=ddof)
    return ((wide - wide.mean(axis, keepdims=True)) / (std + eps)).astype(array.dtype)


# Each has the parameters of the library's function, with their defaults.


def brax(truncation, termination, rewards, values, bootstrap_value, lambda_=1.0, discount=0.99):
    kept, going_on = ~truncation, ~termination
    deltas = kept * (rewards + discount * later(values, bootstrap_value) * going_on - values)
    targets = scan(deltas, discount * lambda_ * (going_on & kept)) + values
    return targets, kept * (rewards + discount * later(targets, bootstrap_value) * going_on - values)


def cleanrl(rewards, values, dones, next_value, next_done, gamma=0.99, gae_lambda=0.95):
    gate = ~later(dones, next_done)
    advantages = gae(rewards, values, later(values, next_value), gamma, gae_lambda, gate, gate)
    return advantages, advantages + values


def paper2code(
    rewards, values, terminateds, truncateds=False, gamma=0.99, lam=0.95, advantage_norm="global", eps=1e-8
):  # fmt: skip
    rewards, values, gate = (each.reshape(len(each), -1) for each in (rewards, values, ~terminateds | truncateds))
    advantages = gae(rewards, values[:-1], values[1:], gamma, lam, gate, gate)
    axis = 0 if advantage_norm == "per_env" else None
    norm = advantages if advantage_norm == "none" else normalized(advantages, axis, 0, eps)
    return norm, advantages + values[:-1]


def pufferlib(values, rewards, terminals, ratio, advantages, gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip):
    v, r, ratios, gate = values.T, rewards.T, ratio.T[:-1], ~terminals.T[1:]
    gamma, gae_lambda = np.float32(gamma), np.float32(gae_lambda)
    deltas = np.minimum(ratios, vtrace_rho_clip) * (r[1:] + gamma * v[1:] * gate - v[:-1])
    result = scan(deltas, gamma * gae_lambda * np.minimum(ratios, vtrace_c_clip) * gate)
    return np.vstack([result, advantages.T[-1:]]).T


def rl_games(fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards, mb_masks=True, *, gamma, tau):
    gate, exists = ~later(mb_fdones, fdones)[..., None], np.broadcast_to(mb_masks, mb_fdones.shape)[..., None]
    following = later(mb_extrinsic_values, last_extrinsic_values)
    return scan(exists * (mb_rewards + gamma * following * gate - mb_extrinsic_values), gamma * tau * (exists & gate))


def rlax_n_step(r_t, discount_t, v_t, n, lambda_t=1.0):
    result, mix = np.append(v_t[:1], v_t), np.asarray(lambda_t)
    for _ in range(n):  # result[t] is G_t, and the last one is V' of the last step
        result[:-1] = r_t + discount_t * ((1 - mix) * v_t + mix * result[1:])
    return result[:-1]


def rlax_vtrace(
    v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_=1.0, clip_rho_threshold=1.0, sample_mask=True, alpha_=1.0
):
    rho, c = ((1 - alpha_) * rho_tm1 + alpha_ * np.minimum(rho_tm1, clip) for clip in (clip_rho_threshold, 1))
    deltas = sample_mask * rho * (r_t + discount_t * v_t - v_tm1)
    return scan(deltas, np.where(sample_mask, discount_t * lambda_ * c, 1))


def rlax_advantages(
    v_tm1, v_t, r_t, discount_t, rho_tm1, alpha=1.0, lambda_=1.0, clip_rho_threshold=1.0, clip_pg_rho_threshold=1.0,
    sample_mask=True,
):  # fmt: skip
    errors = rlax_vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho_threshold, sample_mask, alpha)
    mix = np.broadcast_to(lambda_, v_t.shape)[:-1]
    estimates = r_t + discount_t * np.append(mix * (errors + v_tm1)[1:] + (1 - mix) * v_tm1[1:], v_t[-1])
    weights = (1 - alpha) * rho_tm1 + alpha * np.minimum(rho_tm1, clip_pg_rho_threshold)
    return errors, weights * (estimates - v_tm1), estimates


def rlax_off_policy(q_t, v_t, r_t, discount_t, c_t):
    q_t, c_t = np.append(q_t, v_t[-1]), np.append(c_t, 0)
    return scan(r_t + discount_t * (v_t - c_t * q_t), discount_t * c_t)


def rlax_actions(q_t, a_t, r_t, discount_t, c_t, pi_t):
    taken = q_t[np.arange(len(r_t)), a_t]
    return rlax_off_policy(taken[:-1], (pi_t * q_t).sum(axis=1), r_t, discount_t, c_t[:-1])


def rlax_retrace(q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, eps=1e-8):
    rows = np.arange(len(r_t))
    traces = lambda_ * np.minimum(pi_t[rows, a_t] / (mu_t + eps), 1)
    return rlax_actions(q_t, a_t, r_t, discount_t, traces, pi_t) - q_tm1[rows, a_tm1]


def rlax_continuous(q_tm1, q_t, v_t, r_t, discount_t, log_rhos, lambda_):
    return rlax_off_policy(q_t, v_t, r_t, discount_t, lambda_ * np.minimum(np.exp(log_rhos), 1)) - q_tm1


def rllib(values, rewards, terminateds, truncateds, gamma, lambda_):
    gates = ~terminateds, ~(terminateds | truncateds)
    advantages = gae(rewards.astype(np.float64), values, later(values, 0), gamma, lambda_, *gates)
    return (advantages.astype(np.float32) + values).astype(np.float32)


def rsl_rl(rewards, values, dones, last_values, gamma, lam):
    coefficients = np.float32(gamma), np.float32(lam)
    returns = values + gae(rewards, values, later(values, last_values), *coefficients, ~dones, ~dones)
    return returns, normalized(returns - values, ddof=1)


def sample_factory(rewards, dones, values, valids, γ, λ):
    r, v, valid, going_on = rewards.T, values.T, valids.T.astype(rewards.dtype), ~dones.T
    terms = (r - v[:-1]) * valid[:-1] + going_on * (γ * v[1:] * valid[1:])
    return scan(terms, (γ * λ * valid[:-1] + (1 - valid[:-1])) * going_on).T


def skrl_gae(
    *, rewards, terminated, truncated, values, last_values, discount_factor=0.99, lambda_coefficient=0.95,
    time_limit_bootstrap=False,
):  # fmt: skip
    gate = ~(terminated | truncated if time_limit_bootstrap else terminated)
    advantages = gae(rewards, values, later(values, last_values), discount_factor, lambda_coefficient, gate, gate)
    return advantages + values, normalized(advantages, ddof=1)


def torchrl_td_lambda(gamma, lmbda, next_state_value, reward, done, terminated=None, time_dim=-2):
    ended = done if terminated is None else terminated
    rewards, following, cut = (np.moveaxis(each, time_dim, 0) for each in (reward, next_state_value * ~ended, done))
    trace = lmbda * ~cut
    result = scan(rewards + gamma * (1 - trace) * following, gamma * trace, following[-1])
    return np.moveaxis(result, 0, time_dim)


def trl(values, rewards, mask, *, gamma=1.0, lam=0.95, whiten_rewards=False):
    exists = mask.astype(values.dtype)
    rewards = whitened(rewards * exists, mask, shift_mean=False) if whiten_rewards else rewards * exists
    v = (values * exists).T
    advantages = gae(rewards.T, v, later(v, 0 * v[0]), gamma, lam).T
    return v.T, whitened(advantages, mask), advantages + v.T


LOOPS = {
    "brax": brax,
    "cleanrl": cleanrl,
    "paper2code": paper2code,
    "pufferlib": pufferlib,
    "rl_games": rl_games,
    "rlax gae": lambda r_t, discount_t, lambda_, values: scan(
        r_t + discount_t * values[1:] - values[:-1], discount_t * lambda_
    ),
    "rlax lambda_returns": lambda r_t, discount_t, v_t, lambda_=1.0: scan(
        r_t + discount_t * (1 - np.asarray(lambda_)) * v_t, discount_t * lambda_, v_t[-1]
    ),
    "rlax discounted_returns": lambda r_t, discount_t, v_t: scan(r_t, discount_t, v_t[-1]),
    "rlax n_step_bootstrapped_returns": rlax_n_step,
    "rlax vtrace": rlax_vtrace,
    "rlax vtrace advantage": rlax_advantages,
    "rlax leaky_vtrace": rlax_vtrace,
    "rlax leaky_vtrace advantage": rlax_advantages,
    "rlax off-policy returns": rlax_off_policy,
    "rlax off-policy returns of action values": rlax_actions,
    "rlax retrace": rlax_retrace,
    "rlax retrace_continuous": rlax_continuous,
    "rllib": rllib,
    "rsl_rl": rsl_rl,
    "sample_factory": sample_factory,
    "skrl": skrl_gae,
    "tianshou": lambda v_s, v_s_, rew, end_flag, gamma, gae_lambda: gae(
        *(each.astype(np.float64) for each in (rew, v_s, v_s_)), gamma, gae_lambda, trace=~end_flag
    ),
    "torchrl td_lambda": torchrl_td_lambda,
    "torchrl td_lambda advantage": lambda state_value, **given: torchrl_td_lambda(**given) - state_value,
    "torchrl reward2go": lambda reward, done, gamma: np.moveaxis(
        scan(np.moveaxis(reward, -2, 0), gamma * ~np.moveaxis(done, -2, 0)), 0, -2
    ),
    "trl": trl,
}


def forms(function, given):
    """Yield the arguments, those without a default, and some with options that the tables of calls do not have."""
    parameters = inspect.signature(function).parameters
    yield given
    yield {name: each for name, each in given.items() if parameters[name].default is inspect.Parameter.empty}
    if "discount_t" in given and "lambda_" in given:
        length = len(given.get("log_rhos", given["r_t"]))
        yield {**given, "lambda_": np.linspace(0.9, 0.2, length, dtype=np.float32)}
    if "discount_t" in given:  # RLax's arrays begin with time, and some have a step more or less than others
        for few in (1, 2):
            yield {name: each[: len(each) - STEPS + few] if np.ndim(each) else each for name, each in given.items()}
    if "sample_mask" in parameters:
        yield {**given, "sample_mask": np.arange(len(given["r_t"])) % 3 > 0, "clip_rho_threshold": 1.5}
    if "time_limit_bootstrap" in parameters:
        yield {**given, "time_limit_bootstrap": True}
    elif "terminated" in parameters:
        yield {**given, "terminated": given["done"] & (given["reward"] > 0)}
    if "advantage_norm" in parameters:
        yield {**given, "advantage_norm": "none", "gamma": 0.9, "lam": 0.8}


def test_functions_of_arrays():
    """Float32 has the same bits, but for RLax and TD(lambda), which round in another order.

    tests/test_readings.py compares the functions without a loop here: `identify` names the equation of each.
    """
    for name, (function, arguments, numbers) in {**CALLS, **NUMPY_CALLS}.items():
        loop = LOOPS.get(max((each for each in LOOPS if name.startswith(each)), key=len, default=""))
        tolerance = 2e-6 if "rlax" in name or "td_lambda" in name else 0.0
        for given in forms(function, given_as(of_numpy, arguments, numbers, ["float32"])) if loop else ():
            results = [arrays_of(each(**deepcopy(given))) for each in (function, loop)]
            for got, expected in zip(*results, strict=True):
                np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=f"{name} {[*given]}")


def test_functions_of_hooks(monkeypatch):
    """skrl's agents that pass other arguments, the buffer of Stable-Baselines3, and verl with its own whitening."""
    given = given_as(of_numpy, *CALLS["skrl"][1:], ["float32"])
    rewards, ended, _, values, last = given.values()
    coefficients = {"discount_factor": 0.9, "lambda_coefficient": 0.8}
    named = {"rewards": rewards, "terminated": ended, "values": values, **coefficients}
    whole = later(values, last)
    expected = gae(rewards, values, whole, 0.9, 0.8, ~ended, ~ended)
    always = gae(rewards, values, whole, 0.9, 0.8, trace=~ended)
    agent, amp = skrl._with_next_values(**named, next_values=last), skrl._amp_of_2_0(**named, next_values=whole)
    for got, advantages in ((agent, expected), (amp, always)):
        np.testing.assert_array_equal(got, (advantages + values, normalized(advantages, ddof=1)))
    starts, done = ended, ended[0]
    buffer = SimpleNamespace(
        rewards=rewards, values=values, episode_starts=starts, gamma=0.9, gae_lambda=0.8, advantages=0 * rewards
    )
    stable_baselines3.compute_returns_and_advantage(buffer, last, done)
    expected = cleanrl(rewards, values, starts, last, done, 0.9, 0.8)
    np.testing.assert_array_equal((buffer.advantages, buffer.returns), expected)
    buffer.rewards, buffer.advantages = np.float64(rewards), 0 * rewards  # as a callback may leave them
    stable_baselines3.compute_returns_and_advantage(buffer, last, done)
    assert buffer.advantages.dtype == buffer.returns.dtype == np.float32
    np.testing.assert_allclose((buffer.advantages, buffer.returns), expected, 1e-6, 1e-6)
    _, given, _ = CALLS["verl"]
    monkeypatch.setitem(sys.modules, "verl.utils.torch_functional", SimpleNamespace(masked_whiten=whitened))
    np.testing.assert_allclose(verl._whitened_by_verl(**given), verl.compute_gae_advantage_return(**given))


def grpo(score, group, epsilon=1e-6, norm_adv_by_std_in_grpo=True):
    if len(group) == 1:
        return score / (1 + epsilon) if norm_adv_by_std_in_grpo else score
    return (score - group.mean()) / (group.std(ddof=1) + epsilon if norm_adv_by_std_in_grpo else 1)


def rloo(score, group):
    return score - (group.sum() - score) / max(len(group) - 1, 1)


def test_groups_of_responses():
    tokens, mask = RESPONSES["token_level_rewards"], RESPONSES["response_mask"]
    scores = tokens.sum(axis=1)
    functions = (
        (verl.compute_grpo_outcome_advantage, grpo, {}),
        (verl.compute_grpo_outcome_advantage, grpo, {"epsilon": 0.5}),
        (verl.compute_grpo_outcome_advantage, grpo, {"norm_adv_by_std_in_grpo": False}),
        (verl.compute_rloo_outcome_advantage, rloo, {}),
        (verl.compute_reinforce_plus_plus_baseline_outcome_advantage, grpo, {"norm_adv_by_std_in_grpo": False}),
    )
    for index, (function, of_group, settings) in product((np.array([*"aaba"]), np.array([*"abcb"])), functions):
        whiten = "plus_plus" in function.__name__
        each = [of_group(score, scores[index == name], **settings) for score, name in zip(scores, index, strict=True)]
        expected = np.reshape(each, (-1, 1)) * mask
        expected = whitened(expected, mask) * mask if whiten else expected
        for got in function(tokens, mask, index, **({} if whiten else settings)):
            np.testing.assert_allclose(got, expected, 1e-12, 1e-12, err_msg=f"{function.__name__} {settings}")


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
    s = make_case((100, 1), np.float32, bootstrap="next_values").mapped(lambda _, array: array[:, 0])
    rewards, values = s.rewards, s.values
    for gamma, lam in ((0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.97, 0.8)):
        buffer = SimpleNamespace(rew_buf=rewards, val_buf=values, ptr=0, path_start_idx=0, gamma=gamma, lam=lam)
        buffer.adv_buf, buffer.ret_buf = (np.full(100, np.nan, np.float32) for _ in range(2))
        start = 0
        for t in np.flatnonzero(s.terminated | s.truncated | (np.arange(100) == 99)):
            last = 0 if s.terminated[t] else number(s.next_values[t])
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
