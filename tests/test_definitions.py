"""Each estimator is what its definition says, written as a sum in float64 and not as the recursion that ``fuzz`` uses.

The NumPy backend is compared, because ``fuzz`` compares all others with it, bit for bit.
"""

import functools

import numpy as np
import pytest

import fastgae

STEPS, ENVS, GAMMA, LAMBDA = 37, 5, 0.9, 0.8
assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11)


def rollout(*names):
    """Return rewards, values, flags and the other arguments that are named, in float64."""
    rng, shape = np.random.default_rng(0), (STEPS, ENVS)
    given = {name: rng.normal(size=shape) for name in ("rewards", "values", "next_values", "final_values")}
    given |= {name: rng.random(shape) < 0.1 for name in ("terminated", "truncated")}
    given |= {"ratios": np.exp(rng.normal(size=shape)), "mask": rng.random(shape) < 0.8}
    given["last_values"] = rng.normal(size=ENVS)
    return {name: given[name] for name in ("rewards", "values", "terminated", *names)}


def parts_of(gamma, *, rewards, values, terminated, truncated=None, last_values=None, next_values=None,
             final_values=None, **others):  # fmt: skip
    """Return V', the TD errors and the ends of episodes of a (T, N) rollout with final_values like rewards."""
    following, ends = next_values, terminated
    if following is None:
        following = np.vstack([values[1:], last_values])
    if truncated is not None:
        following = following if final_values is None else np.where(truncated, final_values, following)
        ends = terminated | truncated
    following = np.where(terminated, 0.0, following)
    return following, rewards + gamma * following - values, ends


def summed(terms, decays, ends, most=None):
    """Return, for each step, the sum of the terms of its episode from there on, each times all decays before it.

    Of these terms, ``most`` are added up.
    """
    steps, total = len(terms), np.zeros(terms.shape)
    for start in range(steps):
        weight = np.ones(terms.shape[1])
        for t in range(start, min(start + (most or steps), steps)):
            total[start] += weight * terms[t]
            weight = weight * np.broadcast_to(decays, total.shape)[t] * ~ends[t]
    return total


@pytest.mark.parametrize("gae_lambda", [0.0, LAMBDA, 1.0])
def test_gae(gae_lambda):
    """A lambda of 0 gives the TD error, and of 1 the discounted return minus V; td_lambda gives the returns."""
    given = rollout("truncated", "last_values", "final_values")
    got = fastgae.gae(**given, gamma=GAMMA, gae_lambda=gae_lambda, backend="numpy")
    _, deltas, ends = parts_of(GAMMA, **given)
    advantages = summed(deltas, GAMMA * gae_lambda, ends)  # A_t = sum over k of (gamma lambda)^k delta_{t+k}
    assert_close(got, (advantages, advantages + given["values"]))
    how = {"gamma": GAMMA, "lambda_": gae_lambda, "backend": "numpy"}
    np.testing.assert_array_equal(fastgae.td_lambda(**given, **how), got.returns)
    np.testing.assert_array_equal(fastgae.vtrace(**given, **how, ratios=np.ones((STEPS, ENVS))), got)


@pytest.mark.parametrize("n", [1, 2, 5, STEPS, 1000])
def test_n_step_returns(n):
    """n rewards and the value after them; the discounted returns are those of all steps."""
    given = rollout("truncated", "last_values", "final_values")
    _, deltas, ends = parts_of(GAMMA, **given)
    # In the sum of n TD errors, every V but that of the first step and V' of the last one cancels out.
    expected = given["values"] + summed(deltas, GAMMA, ends, n)
    assert_close(fastgae.n_step_returns(**given, n=n, gamma=GAMMA, backend="numpy"), expected)
    if n >= STEPS:
        del given["values"]
        assert_close(fastgae.discounted_returns(**given, gamma=GAMMA, backend="numpy"), expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("lambda_", [LAMBDA, np.linspace(0, 1, STEPS)[:, np.newaxis]], ids=["number", "per step"])
def test_retrace(masked, lambda_):
    """Equation 3 of Munos et al., as the sum over the steps to the end of the episode."""
    given = rollout("truncated", "next_values", "ratios", *["mask"] * masked)
    exists = given.get("mask", np.True_)
    _, deltas, ends = parts_of(GAMMA, **given)
    traces = np.where(exists, GAMMA * lambda_ * np.minimum(given["ratios"], 1.0), 1.0)
    total = summed(np.where(exists, deltas, 0.0), np.roll(traces, -1, 0), ends & exists)
    got = fastgae.retrace(**given, gamma=GAMMA, lambda_=lambda_, backend="numpy")
    assert_close(got, given["values"] + np.where(exists, total, 0.0))


def test_upgo():
    """The return of the next step takes the place of its value wherever that step was as good as expected."""
    given = rollout("last_values")
    given["rewards"][3], given["values"][3:5], given["terminated"][2:4] = GAMMA / 2, [[0.0], [-0.5]], False  # delta = 0
    _, deltas, ends = parts_of(GAMMA, **given)
    expected = given["values"] + summed(deltas, GAMMA * (np.roll(deltas, -1, 0) >= 0), ends)
    assert_close(fastgae.upgo(**given, gamma=GAMMA, backend="numpy").returns, expected)


def test_tail_normalized():
    """The average of the k-step advantages with weights lambda^(k-1), to the end of the episode or rollout."""
    given = rollout("last_values")
    _, deltas, ends = parts_of(GAMMA, **given)
    k_steps = [summed(deltas, GAMMA, ends, k) for k in range(1, STEPS + 1)]
    left = summed(np.ones_like(deltas), 1.0, ends)  # steps to the end, after which no k has a weight
    weights = [LAMBDA ** (k - 1) * (k <= left) for k in range(1, STEPS + 1)]
    got = fastgae.gae(**given, gamma=GAMMA, gae_lambda=LAMBDA, tail_normalized=True, backend="numpy")
    assert_close(got.advantages, np.einsum("ktn,ktn->tn", weights, k_steps) / np.sum(weights, 0))
    np.testing.assert_array_equal(got.returns, got.advantages + given["values"])


@pytest.mark.parametrize("clip", [0.5, 3.0, None])
def test_vtrace(clip):
    """Equation 1 of Espeholt et al., where a truncated step bootstraps from the final value."""
    given = rollout("truncated", "last_values", "final_values", "ratios")
    following, deltas, ends = parts_of(GAMMA, **given)
    clips = {"rho_clip": clip, "c_clip": 0.8, "advantage_clip": 1.2}
    got = fastgae.vtrace(**given, gamma=GAMMA, lambda_=1.0, **clips, backend="numpy")
    rewards, values, ratios = given["rewards"], given["values"], given["ratios"]
    rhos = np.minimum(ratios, np.inf if clip is None else clip)
    targets = values + summed(rhos * deltas, GAMMA * np.minimum(ratios, 0.8), ends)
    assert_close(got.returns, targets)
    after = np.where(ends, following, np.vstack([targets[1:], given["last_values"]]))
    assert_close(got.advantages, np.minimum(ratios, 1.2) * (rewards + GAMMA * after - values))
