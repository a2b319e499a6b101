"""Retrace: the definition in float64, identities, and how gates and masks cut it."""

import warnings

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS

SHAPE = (37, 5)


def rollout(seed=0, shape=SHAPE, dtype=np.float64):
    rng = np.random.default_rng(seed)
    names = ("rewards", "values", "next_values")
    numbers = {name: rng.normal(size=shape).astype(dtype) for name in names}
    flags = {name: rng.random(shape) < 0.1 for name in ("terminated", "truncated")}
    return {**numbers, **flags, "ratios": np.exp(rng.normal(size=shape)).astype(dtype)}


def expected(given, gamma, lambda_, mask=None):
    """Equation 3 of Munos et al. for one env, as the sum over the steps to the end of the episode."""
    steps = [t for t in range(len(given["rewards"])) if mask is None or mask[t]]
    targets = np.array(given["values"], np.float64)
    for i, start in enumerate(steps):
        total, weight = np.float64(given["values"][start]), 1.0
        for k in range(i, len(steps)):
            t = steps[k]
            if k > i:
                weight *= gamma * lambda_ * min(given["ratios"][t], 1.0)
            following = 0.0 if given["terminated"][t] else given["next_values"][t]
            total += weight * (given["rewards"][t] + gamma * following - given["values"][t])
            if given["terminated"][t] or given["truncated"][t]:
                break
        targets[start] = total
    return targets


def column(given, n):
    return {name: array[:, n] for name, array in given.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_definition(backend, masked):
    given = rollout()
    mask = np.random.default_rng(1).random(SHAPE) < 0.8 if masked else None
    targets = fastgae.retrace(**given, mask=mask, gamma=0.9, lambda_=0.8, backend=backend)
    for n in range(SHAPE[1]):
        exact = expected(column(given, n), 0.9, 0.8, None if mask is None else mask[:, n])
        np.testing.assert_allclose(targets[:, n], exact, rtol=1e-12, atol=1e-12)


def test_ratios_of_one_give_the_lambda_return_of_gae():
    given = rollout() | {"ratios": np.ones(SHAPE)}
    of_gae = {name: array for name, array in given.items() if name != "ratios"}
    np.testing.assert_array_equal(fastgae.retrace(**given, lambda_=0.7), fastgae.gae(**of_gae, gae_lambda=0.7).returns)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infinite_ratios_cause_no_warning(backend):
    given = rollout() | {"ratios": np.full(SHAPE, -np.inf)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastgae.retrace(**given, gamma=0.0, backend=backend)
