"""Gates select: what lies behind a closed one has no effect, NaN, infinity and the sign of zero included."""

import dataclasses
from itertools import product

import numpy as np
import pytest

import fastgae
from support.cases import SIZES, assert_same_bits, make_case
from support.exactness import variants

SPECIAL = [np.nan, np.inf, -np.inf]


def assert_finite_and_same(got, expected, variant):
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right, variant.layout.name)
        assert np.isfinite(array).all()


@pytest.mark.parametrize("ended", ["terminated", "truncated"])
@pytest.mark.parametrize("special", SPECIAL, ids=str)
def test_the_next_episode_has_no_effect(backend, dtype, ended, special):
    """Every env ends an episode at row 8; all that comes after it is NaN or infinite."""
    after = np.arange(17) > 8

    def spoilt(name, array):
        return np.where(after[:, None], special, array).astype(array.dtype) if name in ("rewards", "values") else array

    for variant in variants(backend, dtype):
        case = make_case(variant.layout.size((17, 33)), dtype, "random", "final_dense")
        flags = {"terminated": case.terminated.copy(), "truncated": case.truncated.copy()}
        flags["terminated"][8], flags["truncated"][8] = ended == "terminated", ended == "truncated"
        case = dataclasses.replace(case, **flags)
        expected, _ = variant.run(case)
        got, _ = variant.run(case.mapped(spoilt))
        assert_finite_and_same([array[:9] for array in got], [array[:9] for array in expected], variant)


def test_one_nan_reaches_back_to_the_start_of_its_episode_and_no_further(backend, dtype):
    for variant in variants(backend, dtype):
        case = make_case(variant.layout.size((17, 33)), dtype, "none", "final_dense")
        rewards, terminated = case.rewards.copy(), case.terminated.copy()
        rewards[11, 0] = np.nan
        terminated[4, 0] = True
        got, _ = variant.run(dataclasses.replace(case, rewards=rewards, terminated=terminated))
        expected = np.zeros(rewards.shape, bool)
        expected[5:12, 0] = True
        for array in got:
            np.testing.assert_array_equal(np.isnan(array), expected, variant.layout.name)


def test_a_left_out_term_leaves_minus_zero_alone(backend, dtype):
    """r = -0.0 and V = 0.0 make delta = -0.0. Adding 0.0 in place of a left-out term would make it +0.0."""
    for envs, steps in product(sorted({n for _, n in SIZES}), (1, 2, 9)):
        zeros = np.zeros((steps, envs), dtype)
        flags = np.ones((steps, envs), bool)
        for time_axis in (0, 1):
            advantages, returns = fastgae.gae(
                np.moveaxis(-zeros, 0, time_axis).copy(),
                np.moveaxis(zeros, 0, time_axis).copy(),
                np.moveaxis(flags, 0, time_axis).copy(),
                last_values=np.ones(envs, dtype),
                time_axis=time_axis,
                backend=backend,
            )
            assert np.signbit(advantages).all()
            assert (advantages == 0).all()
            assert not np.signbit(returns).any()


@pytest.mark.parametrize("envs", [1, 3, 17])
def test_an_open_gate_adds_its_zero(backend, dtype, envs):
    """gamma V' = 0.0 is a term like any other: -0.0 + 0.0 = 0.0; and so is gamma lambda A_T with A_T = 0."""
    zeros = np.zeros((3, envs), dtype)
    live = np.zeros((3, envs), bool)
    advantages, _ = fastgae.gae(-zeros, zeros, live, last_values=zeros[0], backend=backend)
    assert not np.signbit(advantages).any()
    # -0.0 + gamma (-0.0) - 0.0 = -0.0, and then + gamma lambda A_T = 0.0 makes it 0.0.
    advantages, _ = fastgae.gae(-zeros[:1], zeros[:1], live[:1], last_values=-zeros[0], backend=backend)
    assert not np.signbit(advantages).any()
