"""The estimators beside gae: right by the identities between them, and the same bits on every backend and layout."""

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits, make_case
from support.exactness import reference
from support.options import pick

SIZE = (33, 9)


def ratios_of(case):
    return pick(case, "ratios").lognormal(size=case.rewards.shape).astype(case.rewards.dtype)


def arguments_of(case):
    """Of an estimator that calls lambda lambda_, or has none."""
    arguments = case.arguments()
    arguments.pop("gae_lambda")
    return arguments


def returns_arguments(case):
    names = ("rewards", "terminated", "truncated", "last_values", "final_values", "gamma")
    return {name: given for name, given in case.arguments().items() if name in names}


def test_discounted_returns_are_the_sums_of_their_rewards(backend):
    case = make_case(SIZE, np.dtype(np.float64), "random", "final_dense", gamma=0.9)
    got = fastgae.discounted_returns(**returns_arguments(case), backend=backend)
    expected, later = np.zeros(SIZE), case.last_values
    for t in reversed(range(SIZE[0])):
        later = np.where(case.truncated[t], case.final_values[t], later)
        later = expected[t] = case.rewards[t] + np.where(case.terminated[t], 0.0, 0.9 * later)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    td1 = fastgae.td_lambda(**arguments_of(case), lambda_=1.0, backend=backend)
    np.testing.assert_allclose(got, td1, rtol=1e-11, atol=1e-11)


def test_discounted_returns_need_no_last_value_where_every_episode_ends(backend):
    rewards, ends = np.ones((3, 2), np.float32), np.array([[0, 0], [1, 0], [1, 1]])
    got = fastgae.discounted_returns(rewards, ends, gamma=0.5, backend=backend)
    assert_same_bits(got, np.float32([[1.5, 1.75], [1.0, 1.5], [1.0, 1.0]]))
    with pytest.raises(ValueError, match="last_values"):
        fastgae.discounted_returns(rewards, np.zeros((3, 2)), backend=backend)


def test_the_last_step_is_the_last_that_exists(backend):
    rewards, exists = np.ones((3, 2), np.float32), np.array([[1, 0], [1, 0], [0, 0]])
    ends_in_time = np.array([[0, 0], [1, 0], [0, 0]])
    got = fastgae.discounted_returns(rewards, ends_in_time, mask=exists, gamma=0.5, backend=backend)
    assert_same_bits(got, np.float32([[1.5, 0.0], [1.0, 0.0], [0.0, 0.0]]))
    only_where_masked = np.array([[0, 0], [0, 0], [1, 1]])
    with pytest.raises(ValueError, match="last_values"):
        fastgae.discounted_returns(rewards, only_where_masked, mask=exists, backend=backend)


@pytest.mark.parametrize("n", [1, 2, 5, 33, 1000])
def test_n_step_returns_are_n_rewards_and_a_bootstrap(n):
    case = make_case(SIZE, np.dtype(np.float64), "random", "final_dense", gamma=0.9)
    got = fastgae.n_step_returns(**arguments_of(case), n=n)
    values = np.vstack([case.values, case.last_values])
    for t, env in np.ndindex(SIZE):
        total, k = 0.0, 0
        while True:
            here = t + k
            total += 0.9**k * case.rewards[here, env]
            k += 1
            if case.terminated[here, env]:
                break
            if case.truncated[here, env]:
                total += 0.9**k * case.final_values[here, env]
                break
            if k == n or t + k == SIZE[0]:
                total += 0.9**k * values[t + k, env]
                break
        assert got[t, env] == pytest.approx(total, rel=1e-12, abs=1e-12)


def test_vtrace_on_policy_is_gae(backend, dtype):
    case = make_case(SIZE, dtype)
    got = fastgae.vtrace(**arguments_of(case), ratios=np.ones(SIZE, dtype), lambda_=case.gae_lambda, backend=backend)
    for array, right in zip(got, reference(case), strict=True):
        assert_same_bits(array, right)


@pytest.mark.parametrize("clip", [0.5, 1.0, 3.0, None])
def test_vtrace_is_its_definition(backend, clip):
    case = make_case(SIZE, np.dtype(np.float64), "random", "final_dense", gamma=0.9)
    ratios = ratios_of(case)
    clips = {"rho_clip": clip, "c_clip": 0.8, "advantage_clip": 1.2}
    got = fastgae.vtrace(**arguments_of(case), ratios=ratios, lambda_=1.0, **clips, backend=backend)
    rho, c, pg = (np.minimum(ratios, np.inf if one is None else one) for one in clips.values())
    following = np.where(case.truncated, case.final_values, np.vstack([case.values[1:], case.last_values]))
    goes_on = ~(case.terminated | case.truncated)
    later = 0.0
    for t in reversed(range(SIZE[0])):
        bootstrap = np.where(case.terminated[t], 0.0, 0.9 * following[t])
        delta = case.rewards[t] + bootstrap - case.values[t]
        target = case.values[t] + rho[t] * delta + np.where(goes_on[t], 0.9 * c[t] * later, 0.0)
        np.testing.assert_allclose(got.returns[t], target, rtol=1e-11, atol=1e-11)
        next_target = following[t] + np.where(goes_on[t], later, 0.0)
        advantage = pg[t] * (case.rewards[t] + np.where(case.terminated[t], 0.0, 0.9 * next_target) - case.values[t])
        np.testing.assert_allclose(got.advantages[t], advantage, rtol=1e-11, atol=1e-11)
        later = target - case.values[t]


def test_packed_coefficients_say_by_their_axes_what_they_are_of(backend):
    """There are as many sequences as steps here, because one of the sequences is empty."""
    rewards, values, starts = np.array([1.0, 2.0]), np.ones(2), np.array([0, 0, 2])
    lambdas, given = np.array([0.0, 0.5]), {"gamma": 1.0, "backend": backend}
    per_step = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas, **given)
    per_sequence = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas[:, np.newaxis], **given)
    assert per_step.advantages.tolist() == [1.0, 1.0]
    assert per_sequence.advantages.tolist() == [1.5, 1.0]


def test_normalize_survives_what_float32_sums_do_not(backend):
    array = np.float32(1e4) + np.random.default_rng(0).normal(size=(4096, 32)).astype(np.float32)
    got = fastgae.normalize(array, backend=backend).astype(np.float64)
    assert abs(got.mean()) < 1e-6
    assert got.std() == pytest.approx(1.0, abs=1e-6)
    cube = np.random.default_rng(1).normal(size=(7, 31, 32))  # its sums in float64 are rounded
    in_c_order = fastgae.normalize(cube, backend=backend)
    assert_same_bits(fastgae.normalize(np.asfortranarray(cube), backend=backend), in_c_order)


@pytest.mark.parametrize("by", ["global", "per_env"])
def test_normalize_of_nothing_and_of_what_is_all_the_same(backend, by):
    assert fastgae.normalize(np.empty((0, 3)), by=by, backend=backend).shape == (0, 3)
    assert (fastgae.normalize(np.full((5, 3), 2.0), by=by, backend=backend) == 0).all()
    exists = np.zeros((5, 3), bool)
    assert (fastgae.normalize(np.full((5, 3), np.nan), exists, by=by, backend=backend) == 0).all()


@pytest.mark.parametrize("time_axis", [0, 1])
def test_valid_steps_are_those_after_no_end(time_axis):
    case = make_case(SIZE, np.dtype(np.float32))
    before = np.arange(9) % 2 == 0
    expected = np.ones(SIZE, bool)
    expected[0] = ~before
    expected[1:] = ~(case.terminated | case.truncated)[:-1]
    turn = (lambda a: a.T) if time_axis else (lambda a: a)
    got = fastgae.valid_steps(turn(case.terminated), turn(case.truncated).astype(int), before, time_axis=time_axis)
    assert_same_bits(turn(got), expected)
    with pytest.raises(ValueError, match="prev_done"):
        fastgae.valid_steps(case.terminated, prev_done=np.zeros(3))
