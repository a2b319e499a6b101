"""Each estimator is what its definition says, written as a sum in float64 and not as the recursion that ``fuzz`` uses.

The NumPy backend is compared, because ``fuzz`` compares all others with it, bit for bit.
"""

import itertools

import numpy as np
import pytest

import fastgae
from support.oracle import gae_oracle

STEPS, ENVS, GAMMA, LAMBDA = 37, 5, 0.9, 0.8


def rollout(*names):
    """Return rewards, values, flags and the other arguments that are named, in float64."""
    rng, shape = np.random.default_rng(0), (STEPS, ENVS)
    given = {name: rng.normal(size=shape) for name in ("rewards", "values", "next_values", "final_values")}
    given |= {name: rng.random(shape) < 0.1 for name in ("terminated", "truncated")}
    given |= {"ratios": np.exp(rng.normal(size=shape)), "mask": rng.random(shape) < 0.8}
    given["last_values"] = rng.normal(size=ENVS)
    return {name: given[name] for name in ("rewards", "values", "terminated", *names)}


def column(given, env):
    return {name: array[..., env] for name, array in given.items()}


def assert_defined(got, definition, given):
    """Compare results with definition(t, **arguments of one env) for every step of every env."""
    expected = np.empty((STEPS, ENVS))
    for t, env in itertools.product(range(STEPS), range(ENVS)):
        expected[t, env] = definition(t, **column(given, env))
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("gae_lambda", [0.0, LAMBDA, 1.0])
def test_gae(gae_lambda):
    """A lambda of 0 gives the TD error, and of 1 the discounted return minus V; td_lambda gives the returns."""
    given = rollout("truncated", "last_values", "final_values")
    got = fastgae.gae(**given, gamma=GAMMA, gae_lambda=gae_lambda, backend="numpy")
    for array, expected in zip(got, gae_oracle(**given, gamma=GAMMA, gae_lambda=gae_lambda), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-11, atol=1e-11)
    targets = fastgae.td_lambda(**given, gamma=GAMMA, lambda_=gae_lambda, backend="numpy")
    np.testing.assert_array_equal(targets, got.returns)
    ratios = np.ones((STEPS, ENVS))
    on_policy = fastgae.vtrace(**given, ratios=ratios, gamma=GAMMA, lambda_=gae_lambda, backend="numpy")
    np.testing.assert_array_equal(on_policy, got)


@pytest.mark.parametrize("n", [1, 2, 5, STEPS, 1000])
def test_n_step_returns(n):
    """n rewards and the value after them; the discounted returns are those of all steps."""

    def definition(start, rewards, values, terminated, truncated, last_values, final_values):
        total = 0.0
        for k, t in enumerate(range(start, min(start + n, STEPS))):
            total += GAMMA**k * rewards[t]
            following = final_values[t] if truncated[t] else values[t + 1] if t + 1 < STEPS else last_values
            if terminated[t] or truncated[t]:
                break
        return total if terminated[t] else total + GAMMA ** (k + 1) * following

    given = rollout("truncated", "last_values", "final_values")
    assert_defined(fastgae.n_step_returns(**given, n=n, gamma=GAMMA, backend="numpy"), definition, given)
    if n >= STEPS:
        of_rewards = {name: array for name, array in given.items() if name != "values"}
        assert_defined(fastgae.discounted_returns(**of_rewards, gamma=GAMMA, backend="numpy"), definition, given)


@pytest.mark.parametrize("n", [1, 3, STEPS])
def test_a_mask_leaves_steps_out_of_the_n(n):
    """The results are those of the steps that exist alone, and values elsewhere; V' that no step reads may be NaN."""
    given = rollout("truncated", "next_values", "mask")
    got = fastgae.n_step_returns(**given, n=n, gamma=GAMMA, backend="numpy")
    exists = given.pop("mask")
    np.testing.assert_array_equal(got[~exists], given["values"][~exists])
    for env in range(ENVS):
        alone = {name: array[exists[:, env], env] for name, array in given.items()}
        expected = fastgae.n_step_returns(**alone, n=n, gamma=GAMMA, backend="numpy")
        np.testing.assert_array_equal(got[exists[:, env], env], expected)
        del alone["values"]
        alone["next_values"][:-1][~alone["truncated"][:-1]] = np.nan
        to_go = fastgae.discounted_returns(**alone, gamma=GAMMA, backend="numpy")
        assert n < STEPS or np.allclose(to_go, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_retrace(masked):
    """Equation 3 of Munos et al., as the sum over the steps to the end of the episode."""

    def definition(start, rewards, values, terminated, truncated, next_values, ratios, mask=None):
        total, weight = values[start], 1.0
        for t in range(start, STEPS):
            if mask is not None and not mask[t]:
                if t == start:
                    break
                continue
            if t > start:
                weight *= GAMMA * LAMBDA * min(ratios[t], 1.0)
            following = 0.0 if terminated[t] else next_values[t]
            total += weight * (rewards[t] + GAMMA * following - values[t])
            if terminated[t] or truncated[t]:
                break
        return total

    given = rollout("truncated", "next_values", "ratios", *["mask"] * masked)
    assert_defined(fastgae.retrace(**given, gamma=GAMMA, lambda_=LAMBDA, backend="numpy"), definition, given)


def test_upgo():
    """The return of the next step takes the place of its value wherever that step was as good as expected."""

    def definition(t, rewards, values, terminated, last_values):
        after = [*values[1:], last_values]
        deltas = rewards + GAMMA * np.where(terminated, 0.0, after) - values
        rises = t + 1 < STEPS and deltas[t + 1] >= 0
        following = definition(t + 1, rewards, values, terminated, last_values) if rises else after[t]
        return rewards[t] + (0.0 if terminated[t] else GAMMA * following)

    given = rollout("last_values")
    given["rewards"][3], given["values"][3:5], given["terminated"][2:4] = GAMMA / 2, [[0.0], [-0.5]], False  # delta = 0
    assert_defined(fastgae.upgo(**given, gamma=GAMMA, backend="numpy").returns, definition, given)


def test_tail_normalized():
    """The average of the k-step advantages with weights lambda^(k-1), to the end of the episode or rollout."""

    def definition(start, rewards, values, terminated, last_values):
        total, discounted, weights, after = 0.0, 0.0, 0.0, [*values[1:], last_values]
        for k, t in enumerate(range(start, STEPS)):
            bootstrap = 0.0 if terminated[t] else GAMMA ** (k + 1) * after[t]
            discounted += GAMMA**k * rewards[t]
            total += LAMBDA**k * (discounted + bootstrap - values[start])
            weights += LAMBDA**k
            if terminated[t]:
                break
        return total / weights

    given = rollout("last_values")
    got = fastgae.gae(**given, gamma=GAMMA, gae_lambda=LAMBDA, tail_normalized=True, backend="numpy")
    assert_defined(got.advantages, definition, given)
    np.testing.assert_array_equal(got.returns, got.advantages + given["values"])


@pytest.mark.parametrize("clip", [0.5, 3.0, None])
def test_vtrace(clip):
    """Equation 1 of Espeholt et al., where a truncated step bootstraps from the final value."""
    given = rollout("truncated", "last_values", "final_values", "ratios")
    clips = {"rho_clip": clip, "c_clip": 0.8, "advantage_clip": 1.2}
    got = fastgae.vtrace(**given, gamma=GAMMA, lambda_=1.0, **clips, backend="numpy")

    def delta(t, rewards, values, terminated, truncated, last_values, final_values, ratios):
        following = final_values[t] if truncated[t] else values[t + 1] if t + 1 < STEPS else last_values
        return rewards[t] + (0.0 if terminated[t] else GAMMA * following) - values[t], following

    def target(start, **of_env):
        total, weight = of_env["values"][start], 1.0
        for t in range(start, STEPS):
            ratio = of_env["ratios"][t]
            total += weight * min(ratio, np.inf if clip is None else clip) * delta(t, **of_env)[0]
            weight *= GAMMA * min(ratio, 0.8)
            if of_env["terminated"][t] or of_env["truncated"][t]:
                break
        return total

    def advantage(t, **of_env):
        ended, value = of_env["terminated"][t], of_env["values"][t]
        following = delta(t, **of_env)[1]
        if t + 1 < STEPS and not (ended or of_env["truncated"][t]):
            following = target(t + 1, **of_env)
        return min(of_env["ratios"][t], 1.2) * (of_env["rewards"][t] + (0.0 if ended else GAMMA * following) - value)

    assert_defined(got.returns, target, given)
    assert_defined(got.advantages, advantage, given)
