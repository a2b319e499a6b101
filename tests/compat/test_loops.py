"""Functions of compat beside the loops of their libraries, written out; tests/peers has the libraries' own."""

import inspect
import sys
from copy import deepcopy
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.compat import envpool, skrl, spinningup, stable_baselines3, verl
from loops import later, tokens
from loops.tokens import whiten
from support.cases import assert_same_bits, make_case
from support.compat_calls import CALLS, ENVS, MASK, NUMPY_CALLS, STEPS, VTRACE, prepared
from support.functions import arrays_of

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


def labml(done, rewards, values):
    dtype = np.float32 if done.dtype == np.float32 else np.float64
    r, v, gate = rewards.T.astype(dtype), values.T.astype(dtype), done.T == 0
    return gae(r, v[:-1], v[1:], 0.9, 0.8, gate, gate).T.astype(np.float32)


def openrlhf(values, rewards, action_mask, gamma, lambd):
    exists = True if action_mask is None else action_mask != 0
    return tokens.trl(rewards * exists, values * exists, gamma, lambd)


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
    advantages[:, :-1] = scan(deltas, gamma * gae_lambda * np.minimum(ratios, vtrace_c_clip) * gate).T
    return advantages


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
    wide = (each.astype(np.float64) for each in (rewards, values, later(values, 0)))
    advantages = gae(*wide, gamma, lambda_, *gates)
    return (advantages.astype(np.float32) + values).astype(np.float32)


def rsl_rl(rewards, values, dones, last_values, gamma, lam, normalize_advantage=True):
    coefficients = np.float32(gamma), np.float32(lam)
    returns = values + gae(rewards, values, later(values, last_values), *coefficients, ~dones, ~dones)
    return returns, normalized(returns - values, ddof=1) if normalize_advantage else returns - values


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


def time_first(loop):
    """Let a loop over the first axis take a ``time_dim`` and coefficients that broadcast, and give it all flags."""

    def moved(*, time_dim=-2, **given):
        def first(array):  # a number stays one, because numbers do not decide on the dtype
            return np.moveaxis(np.broadcast_to(array, given["reward"].shape), time_dim, 0) if np.ndim(array) else array

        results = loop(**{name: first(each) for name, each in ({"terminated": given["done"]} | given).items()})
        return tuple(np.moveaxis(each, 0, time_dim) for each in arrays_of(results))

    return moved


def torchrl_gae(gamma, lmbda, state_value, next_state_value, reward, done, terminated):
    advantages = gae(reward, state_value, next_state_value, gamma, lmbda, ~terminated, ~done)
    return advantages, advantages + state_value


def torchrl_td_lambda(gamma, lmbda, next_state_value, reward, done, terminated, state_value=0):
    following, trace = next_state_value * ~terminated, lmbda * ~done
    return scan(reward + gamma * (1 - trace) * following, gamma * trace, following[-1]) - state_value


def torchrl_reward2go(reward, done, terminated, gamma):
    return scan(reward, gamma * ~done)


def torchrl_vtrace(
    gamma, log_pi, log_mu, state_value, next_state_value, reward, done, terminated, rho_thresh=1.0, c_thresh=1.0
):
    rho, c = (np.minimum(np.exp(log_pi - log_mu), limit) for limit in (rho_thresh, c_thresh))
    deltas = reward + gamma * next_state_value * ~terminated - state_value
    targets = state_value + scan(rho * deltas, gamma * c * ~done)
    following = np.where(done, next_state_value, later(targets, next_state_value[-1]))
    return rho * (reward + gamma * following * ~terminated - state_value), targets


def trl(values, rewards, mask, *, gamma=1.0, lam=0.95, whiten_rewards=False):
    v, rewards = values * (mask != 0), rewards * (mask != 0)
    rewards = whiten(rewards, mask, shift_mean=False) if whiten_rewards else rewards
    advantages, returns = tokens.trl(rewards, v, gamma, lam)
    return v, whiten(advantages, mask), returns


ALONE = (
    brax, cleanrl, labml, openrlhf, paper2code, pufferlib, rl_games, rllib, rsl_rl, sample_factory, trl
)  # fmt: skip
LOOPS = {each.__name__: each for each in ALONE} | {
    "envpool": lambda **given: of_envpool(**given),
    "rlax gae": lambda r_t, discount_t, lambda_, values: scan(
        r_t + discount_t * values[1:] - values[:-1], discount_t * lambda_
    ),
    "rlax lambda_returns": lambda r_t, discount_t, v_t, lambda_=1.0: scan(
        r_t + discount_t * (1 - np.asarray(lambda_)) * v_t, discount_t * lambda_, v_t[-1]
    ),
    "rlax discounted_returns": lambda r_t, discount_t, v_t: scan(r_t, discount_t, np.ravel(v_t)[-1]),
    "rlax n_step_bootstrapped_returns": rlax_n_step,
    "rlax vtrace": rlax_vtrace,
    "rlax vtrace advantage": rlax_advantages,
    "rlax leaky_vtrace": rlax_vtrace,
    "rlax leaky_vtrace advantage": rlax_advantages,
    "rlax off-policy returns": rlax_off_policy,
    "rlax off-policy returns of action values": rlax_actions,
    "rlax retrace": rlax_retrace,
    "rlax retrace_continuous": rlax_continuous,
    "skrl": skrl_gae,
    "tianshou": lambda v_s, v_s_, rew, end_flag, gamma, gae_lambda: gae(
        *(each.astype(np.float64) for each in (rew, v_s, v_s_)), gamma, gae_lambda, trace=~end_flag
    ),
    "torchrl gae": time_first(torchrl_gae),
    "torchrl td_lambda": time_first(torchrl_td_lambda),
    "torchrl reward2go": time_first(torchrl_reward2go),
    "torchrl vtrace": time_first(torchrl_vtrace),
    "verl": lambda response_mask, lam, **given: tokens.sky_rl(response_masks=response_mask, lambd=lam, **given),
}


ROWS = np.arange(STEPS)
# Options that the tables of calls do not have, for each function that has all these arguments.
OPTIONS = [
    {"action_mask": None},
    {"advantages": np.full((ENVS, STEPS), 0.5, np.float32)},  # PufferLib leaves the last column as it is
    {"advantage_norm": "none", "gamma": 0.9, "lam": 0.8},
    {"done": np.float32(MASK), "rewards": np.float32(MASK * ROWS)},  # in labml, the dtype of flags matters
    {"eps": 0.5},
    {"next_value": np.arange(ENVS, dtype=np.float32), "next_done": np.arange(ENVS) > 1},
    {"normalize_advantage": False},
    {"rho_thresh": np.full(1, 0.75, np.float32), "c_thresh": np.full((1, 1), 0.5, np.float32)},
    {"sample_mask": ROWS % 3 > 0, "clip_rho_threshold": 1.5},
    {"sample_mask": ROWS != 1, "r_t": np.where(ROWS == 1, np.inf, ROWS).astype(np.float32)},  # RLax multiplies it by 0
    {"time_limit_bootstrap": True},
]


def forms(function, given):
    """Yield the arguments, those without a default, and some with options."""
    parameters = inspect.signature(function).parameters
    yield given
    yield {name: each for name, each in given.items() if parameters[name].default is inspect.Parameter.empty}
    yield from (given | changed for changed in OPTIONS if changed.keys() <= parameters.keys())
    if "discount_t" in given and "lambda_" in given:
        length = len(given.get("log_rhos", given["r_t"]))
        yield {**given, "lambda_": np.linspace(0.9, 0.2, length, dtype=np.float32)}
    if "discount_t" in given:  # RLax's arrays begin with time, and some have a step more or less than others
        for few in (1, 2):
            yield {name: each[: len(each) - STEPS + few] if np.ndim(each) else each for name, each in given.items()}
    if "time_dim" in parameters:
        if "terminated" in parameters:
            yield {**given, "terminated": given["done"] & (given["reward"] > 0)}
        moved = {name: np.moveaxis(each, -2, 0) for name, each in given.items() if np.ndim(each)}
        by_env = np.linspace(0.9, 0.6, ENVS, dtype=np.float32)[:, np.newaxis]  # it lacks the axis of time
        for coefficient in (by_env, by_env[:1]):
            some = {name: coefficient for name in ("gamma", "lmbda") if name in given}
            yield given | moved | some | {"time_dim": 0}


def test_functions_of_arrays(monkeypatch):
    """Every function has a loop here. Arguments stay as they are.

    Float32 has the same bits, but for RLax, TD(lambda) and EnvPool, which round in another order.
    """
    # torchrl's V-trace takes only the exponential from torch.
    exponential = lambda array: SimpleNamespace(exp=lambda: SimpleNamespace(numpy=lambda: np.exp(array)))  # noqa: E731
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=exponential))
    for name, call in {**CALLS, **NUMPY_CALLS, **VTRACE}.items():
        loop = LOOPS[max((each for each in LOOPS if name.startswith(each)), key=len)]
        tolerance = 2e-6 if any(each in name for each in ("rlax", "td_lambda", "envpool")) else 0.0
        for given in forms(*prepared(call)):
            same = deepcopy(given)
            got = arrays_of(call[0](**given))
            with np.errstate(invalid="ignore"):
                expected = arrays_of(loop(**same))
            np.testing.assert_equal(given, same, f"{name} {[*given]}")  # PufferLib's advantages are filled by both
            for array, theirs in zip(got, expected, strict=True):
                np.testing.assert_allclose(array, theirs, tolerance, tolerance, err_msg=f"{name} {[*given]}")


def test_functions_of_hooks(monkeypatch):
    """skrl's agents that pass other arguments, the buffer of Stable-Baselines3, and verl with its own whitening."""
    rewards, ended, _, values, last = prepared(CALLS["skrl"])[1].values()
    named = {"rewards": rewards, "terminated": ended, "values": values}
    coefficients, following = {"discount_factor": 0.9, "lambda_coefficient": 0.8}, later(values, last)
    for agent, given, gates in ((skrl._with_next_values, last, [~ended]), (skrl._amp_of_2_0, following, [])):
        advantages = gae(rewards, values, following, 0.9, 0.8, *gates, trace=~ended)
        got = agent(**named, **coefficients, next_values=given)
        np.testing.assert_array_equal(got, (advantages + values, normalized(advantages, ddof=1)))
    starts, done = ended, ended[0]
    infinite = np.copy(rewards)
    infinite[1, starts[1] == 0] = np.inf
    buffer = SimpleNamespace(rewards=infinite, values=values, episode_starts=starts, advantages=0 * rewards)
    buffer.gae_lambda = 0.8
    for buffer.gamma in (np.float64(0.9), 0.9):  # NumPy's float64 promotes the loop
        stable_baselines3.compute_returns_and_advantage(buffer, last, done)
        advantages = np.float32(cleanrl(infinite, values, starts, last, done, buffer.gamma, 0.8)[0])
        expected = advantages, advantages + values
        assert not np.isnan(advantages).any()
        np.testing.assert_array_equal((buffer.advantages, buffer.returns), expected)
    # A callback may leave float64 in the buffer, a critic may give it, and tensors may be on a GPU.
    gates = ~later(starts, done)
    for buffer.rewards, number in ((np.float64(infinite), last), (infinite, np.float64(last))):
        buffer.advantages, tensor = 0 * rewards, SimpleNamespace(numpy=lambda *, force, n=number: n[:, np.newaxis])
        stable_baselines3.compute_returns_and_advantage(buffer, tensor, done)
        assert buffer.advantages.dtype == buffer.returns.dtype == np.float32
        steps = zip(buffer.rewards, [*values[1:], number], gates, values, strict=True)
        deltas = np.float64([reward + 0.9 * following * gate - value for reward, following, gate, value in steps])
        advantages = np.float32(scan(deltas, np.float32(0.9 * 0.8) * gates))
        np.testing.assert_array_equal((buffer.advantages, buffer.returns), (advantages, advantages + values))
    _, given, _ = CALLS["verl"]
    monkeypatch.setitem(sys.modules, "verl.utils.torch_functional", SimpleNamespace(masked_whiten=whiten))
    np.testing.assert_allclose(verl._whitened_by_verl(**given), verl.compute_gae_advantage_return(**given))


def grpo(score, group, epsilon=1e-6, norm_adv_by_std_in_grpo=True):
    if len(group) == 1:
        return score / (1 + epsilon) if norm_adv_by_std_in_grpo else score
    return (score - group.mean()) / (group.std(ddof=1) + epsilon if norm_adv_by_std_in_grpo else 1)


def rloo(score, group):
    return score - (group.sum() - score) / max(len(group) - 1, 1)


def test_groups_of_responses():
    rewards, mask = RESPONSES["token_level_rewards"], RESPONSES["response_mask"]
    scores = rewards.sum(axis=1)
    functions = (
        (verl.compute_grpo_outcome_advantage, grpo, {}),
        (verl.compute_grpo_outcome_advantage, grpo, {"epsilon": 0.5}),
        (verl.compute_grpo_outcome_advantage, grpo, {"norm_adv_by_std_in_grpo": False}),
        (verl.compute_rloo_outcome_advantage, rloo, {}),
        (verl.compute_reinforce_plus_plus_baseline_outcome_advantage, grpo, {"norm_adv_by_std_in_grpo": False}),
    )
    for index, (function, of_group, settings) in product((np.array([*"aaba"]), np.array([*"abcb"])), functions):
        whole = "plus_plus" in function.__name__
        each = [of_group(score, scores[index == name], **settings) for score, name in zip(scores, index, strict=True)]
        expected = np.reshape(each, (-1, 1)) * mask
        expected = whiten(expected, mask) * mask if whole else expected
        for got in function(rewards, mask, index, **({} if whole else settings)):
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
@pytest.mark.parametrize("size", [(0, 3, 4), (1, 1, 1), (5, 3, 3), (40, 4, 9), (33, 8, 64), (3, 2, 50)], ids=str)
def test_envpool(size, dtype):
    batches, batch, envs = size
    rng = np.random.default_rng(size)
    ids = rng.permuted(np.tile(np.arange(envs, dtype=np.int32), (batches, 1)), axis=1)[:, :batch]
    value, reward = rng.normal(size=(2, batches, batch)).astype(dtype)
    given = 0.99, 0.95, value, reward, rng.random((batches, batch)) < 0.2, ids, envs
    got, expected = envpool.compute_gae(*given), of_envpool(*given)
    for array, theirs in zip(got, expected, strict=True):
        assert array.dtype == theirs.dtype
        np.testing.assert_allclose(array, theirs, 0, 8 * np.finfo(dtype).eps * np.abs(theirs).max(initial=0))
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
