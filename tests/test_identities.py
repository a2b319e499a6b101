"""What must hold between answers, whatever the numbers are."""

import dataclasses
import itertools

import numpy as np
import pytest

from support.cases import BOOTSTRAPS, Case, assert_same_bits, make_case

pytestmark = pytest.mark.parametrize("layout", ["c", "sliced", "env_major", "cube_time_1"], indirect=True)
SIZE = (33, 31)


def case_for(variant, flags="random", bootstrap="final_dense", **settings):
    return make_case(variant.layout.size(SIZE), variant.dtype, flags, bootstrap, **settings)


def next_values_of(case: Case):
    """V' of every step, and the gates, by the definition; float64."""
    rest = case.values[1:] if len(case.values) > len(case.rewards) else np.vstack([case.values[1:], case.last_values])
    return np.where(case.truncated, case.final_values, rest).astype(np.float64)


def assert_pair_same_bits(got, expected, what=""):
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right, what)


def test_lambda_0_is_the_td_error(variant):
    case = case_for(variant, gae_lambda=0.0, gamma=0.9)
    (advantages, _), _ = variant.run(case)
    td_error = case.rewards + 0.9 * next_values_of(case) * ~case.terminated - case.values
    np.testing.assert_allclose(advantages, td_error, rtol=1e-5, atol=1e-6)


def test_lambda_1_is_the_discounted_return_minus_v(variant):
    case = case_for(variant, gae_lambda=1.0, gamma=0.9)
    (advantages, returns), _ = variant.run(case)
    following = next_values_of(case)
    discounted = np.zeros(case.rewards.shape)
    tail = following[-1]
    for t in reversed(range(len(discounted))):
        tail = np.where(case.truncated[t], following[t], tail)
        tail = case.rewards[t] + 0.9 * np.where(case.terminated[t], 0.0, tail)
        discounted[t] = tail
    np.testing.assert_allclose(returns, discounted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, discounted - case.values, rtol=1e-4, atol=1e-5)


def test_permuting_envs_permutes_the_answer(variant):
    for bootstrap in BOOTSTRAPS:
        case = case_for(variant, bootstrap=bootstrap)
        order = np.random.default_rng(1).permutation(case.rewards.shape[1])
        got, _ = variant.run(case)
        permuted, _ = variant.run(case.envs(order))
        assert_pair_same_bits(permuted, [a[:, order] for a in got], bootstrap)


def test_envs_do_not_know_of_each_other(variant):
    """However the batch is split over envs, every env has the same bits."""
    for bootstrap in BOOTSTRAPS:
        case = case_for(variant, bootstrap=bootstrap)
        whole, _ = variant.run(case)
        width = case.rewards.shape[1]
        for edges in ([0, 2, width], [0, 16, 18, width], [0, width // 2 * 2, width]):
            for first, last in itertools.pairwise(edges):
                part = case.envs(slice(first, last))
                if part.rewards.shape[1] and part.rewards.shape[1] % max(variant.layout.env_axes, 1) == 0:
                    got, _ = variant.run(part)
                    assert_pair_same_bits(got, [a[:, first:last] for a in whole], f"{bootstrap} {edges}")


def steps(case: Case, first, last):
    """The case of the steps [first, last)."""
    stop = {"values": last + 1 if len(case.values) > len(case.rewards) else last}
    return case.mapped(lambda name, a: a.copy() if name == "last_values" else a[first : stop.get(name, last)].copy())


def test_the_last_rows_depend_only_on_the_last_rows(variant):
    for bootstrap in BOOTSTRAPS:
        case = case_for(variant, bootstrap=bootstrap)
        got, _ = variant.run(case)
        for k in (1, 2, 16, 32):
            tail, _ = variant.run(steps(case, SIZE[0] - k, SIZE[0]))
            assert_pair_same_bits(tail, [a[-k:] for a in got], f"{bootstrap}, the last {k}")


@pytest.mark.parametrize("ended", ["terminated", "truncated"])
def test_a_done_splits_the_problem(variant, ended):
    """All envs end at one step: the steps up to it are a problem of their own."""
    case = case_for(variant)
    at = 12
    flags = {"terminated": case.terminated.copy(), "truncated": case.truncated.copy()}
    flags["terminated"][at], flags["truncated"][at] = ended == "terminated", ended == "truncated"
    case = dataclasses.replace(case, **flags)
    whole, _ = variant.run(case)
    head = steps(case, 0, at + 1)
    before, _ = variant.run(dataclasses.replace(head, last_values=np.full_like(case.last_values, 1e6)))
    after, _ = variant.run(steps(case, at + 1, SIZE[0]))
    assert_pair_same_bits(before, [a[: at + 1] for a in whole])
    assert_pair_same_bits(after, [a[at + 1 :] for a in whole])


def test_the_ways_to_bootstrap_agree(variant):
    """A longer values, last_values and next_values say the same; so do dense and sparse final_values."""
    case = case_for(variant)
    longer = np.vstack([case.values, case.last_values])
    same = [
        dataclasses.replace(case, sparse=True),
        dataclasses.replace(case, values=longer, last_values=None),
        dataclasses.replace(
            case, last_values=None, final_values=None, next_values=next_values_of(case).astype(variant.dtype)
        ),
    ]
    expected, _ = variant.run(case)
    for other in same:
        got, _ = variant.run(other)
        assert_pair_same_bits(got, expected)
