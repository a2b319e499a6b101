"""The estimators beside gae: right by the identities between them, and the same bits on every backend and layout."""

import dataclasses
import itertools

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET
from support.cases import FEW_SIZES, assert_same_bits, make_case
from support.exactness import answer, reference
from support.layouts import SOME, layouts_of
from support.options import call, check, coefficients, pick, some_mask

SIZE = (33, 9)


def ratios_of(case):
    return pick(case, "ratios").lognormal(size=case.rewards.shape).astype(case.rewards.dtype)


def arguments_of(case):
    """Of an estimator that calls lambda lambda_, or has none."""
    arguments = case.arguments()
    arguments.pop("gae_lambda")
    return arguments


@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_td_lambda_is_the_returns_of_gae(backend, dtype, lambda_):
    case = make_case(SIZE, dtype, gae_lambda=lambda_)
    got = fastgae.td_lambda(**arguments_of(case), lambda_=lambda_, backend=backend)
    assert_same_bits(got, reference(case).returns)


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


def test_discounted_returns_everywhere(backend, dtype):
    for layout, size in itertools.product(layouts_of(backend, SOME), FEW_SIZES):
        case = make_case(layout.size(size), dtype)
        exists = some_mask(case)
        arguments, plain = layout.arguments(case)
        expected = answer(fastgae.discounted_returns, **returns_arguments(plain), mask=exists)
        names = [*returns_arguments(plain), "time_axis"]
        here = {name: arguments[name] for name in names if name in arguments}
        exists = layout.arranged("mask", exists)
        got = fastgae.discounted_returns(**here, mask=exists, backend=backend)
        assert_same_bits(layout.plain("advantages", got), expected)


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


def test_n_step_returns_in_every_layout(dtype):
    for layout in SOME:
        case = make_case(layout.size((9, 4)), dtype)
        arguments, plain = layout.arguments(case)
        out = np.empty(layout.shape(case.rewards).shape, dtype)
        expected = fastgae.n_step_returns(**arguments_of(plain), n=3)
        arguments.pop("gae_lambda")
        got = fastgae.n_step_returns(**arguments, n=3, out=out)
        assert got is out
        assert_same_bits(layout.plain("advantages", got), expected, layout.name)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
def test_n_must_be_a_positive_integer(n):
    with pytest.raises(ValueError, match="n must be a positive integer"):
        fastgae.n_step_returns([1.0], [1.0, 1.0], [0], n=n)


def test_reverse_scan_is_what_it_says(backend, dtype):
    rng = np.random.default_rng(3)
    x, decay, initial = (rng.normal(size=shape).astype(dtype) for shape in (SIZE, SIZE, SIZE[1]))
    x[4, 2], x[0, 0], decay[7, 3] = np.nan, -0.0, 0.0
    got = fastgae.reverse_scan(x, decay, initial=initial, backend=backend)
    later = initial
    for t in reversed(range(SIZE[0])):
        later = x[t] + decay[t] * later
        assert_same_bits(got[t], later)
    assert_same_bits(fastgae.reverse_scan(x.T, decay.T, initial=initial, time_axis=1, backend=backend), got.T)


@pytest.mark.parametrize("decay", [0.9, 1.5, np.float64(-0.5), [[0.5]], np.arange(9.0)[np.newaxis] / 4])
def test_decay_broadcasts_and_may_be_any_number(backend, decay):
    x = np.random.default_rng(4).normal(size=SIZE)
    full = np.broadcast_to(np.asarray(decay, float), SIZE)
    got = fastgae.reverse_scan(x, decay, backend=backend)
    assert_same_bits(got, fastgae.reverse_scan(x, full.copy(), backend="numpy"))
    assert got[-2, 0] == x[-2, 0] + full[-2, 0] * x[-1, 0]


@pytest.mark.parametrize("decay", [np.nan, -1.0, 2.0, np.inf])
def test_reverse_scan_takes_any_number(backend, decay):
    x = np.random.default_rng(4).normal(size=(9, 3))
    expected = fastgae.reverse_scan(x, np.full(x.shape, decay), backend="numpy")
    assert_same_bits(fastgae.reverse_scan(x, decay, backend=backend), expected)


def test_discounted_returns_are_a_reverse_scan(backend, dtype):
    rewards = make_case(SIZE, dtype).rewards
    last = rewards[0] * 3
    got = fastgae.discounted_returns(rewards, np.zeros(SIZE), last_values=last, gamma=0.75, backend=backend)
    assert_same_bits(got, fastgae.reverse_scan(rewards, dtype.type(0.75), initial=last, backend="numpy"))


def vtrace(*, ratios, gae_lambda=1.0, **arguments):
    return fastgae.vtrace(ratios=ratios, lambda_=gae_lambda, **arguments)


def test_vtrace_everywhere(backend, dtype):
    for layout, (number, size) in itertools.product(layouts_of(backend, SOME), enumerate(FEW_SIZES)):
        case = make_case(layout.size(size), dtype, "random", ("final_sparse", "next_values")[number % 2])
        ratios = ratios_of(case)
        ratios[0, 0] = np.nan
        ratios[-1, -1] = -0.0
        check(case, layout, backend, {"ratios": ratios, "rho_clip": 0.9, "c_clip": 0.0, "advantage_clip": 1.5}, vtrace)


def test_vtrace_with_mask_and_coefficients(backend, dtype):
    for layout in layouts_of(backend):
        case = make_case(layout.size((17, 7)), dtype)
        given = {
            "ratios": ratios_of(case),
            "mask": some_mask(case),
            "gamma": coefficients(case, "gamma", case.rewards.shape),
        }
        for array, right in zip(*call(case, layout, backend, given, vtrace), strict=True):
            assert_same_bits(array, right, layout.name)


def test_vtrace_on_policy_is_gae(backend, dtype):
    case = make_case(SIZE, dtype)
    got = vtrace(**case.arguments(), ratios=np.ones(SIZE, dtype), backend=backend)
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


@pytest.mark.parametrize("name", ["rho_clip", "c_clip", "advantage_clip"])
@pytest.mark.parametrize("clip", [-1.0, float("nan"), "1.0x", [1.0, 2.0]])
def test_clips_are_checked(name, clip):
    case = make_case((3, 2), np.dtype(np.float32))
    with pytest.raises(ValueError, match=name):
        fastgae.vtrace(**arguments_of(case), ratios=case.rewards, **{name: clip})


@pytest.mark.parametrize("ratios", [None, np.ones((3, 3))])
def test_ratios_are_checked(ratios):
    case = make_case((3, 2), np.dtype(np.float32))
    with pytest.raises((TypeError, ValueError), match="ratios"):
        fastgae.vtrace(**arguments_of(case), ratios=ratios)


LENGTHS = {"mixed": [3, 0, 1, 700, 2, 0, 45, 1], "short": [1, 2, 3] * 100, "one": [3000], "none": [], "empty": [0, 0]}


def packed(lengths, dtype):
    rng = np.random.default_rng([7, len(lengths), sum(lengths)])
    total = sum(lengths)
    rewards, values = (rng.normal(size=total).astype(dtype) for _ in range(2))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return rewards, values, starts, rng.random(total) < 0.1, rng.normal(size=len(lengths)).astype(dtype), rng


@pytest.mark.parametrize("backend", ONE_TARGET)  # their kernels are those of gae
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("bootstrapped", [False, True])
def test_packed_sequences_are_rollouts_of_their_own(backend, dtype, lengths, bootstrapped):
    for masked, per_sequence in itertools.product([False, True], repeat=2):
        check_packed(backend, dtype, lengths, bootstrapped, masked, per_sequence)


def check_packed(backend, dtype, lengths, bootstrapped, masked, per_sequence):
    rewards, values, starts, ends, last, rng = packed(LENGTHS[lengths], dtype)
    exists = rng.random(len(rewards)) < 0.6 if masked else None
    each = rng.random(len(last)) if per_sequence else 0.9
    got = fastgae.gae_packed(
        rewards, values, starts, ends, last_values=last if bootstrapped else None, mask=exists, gamma=0.97,
        gae_lambda=each[:, np.newaxis] if per_sequence else each, backend=backend,
    )  # fmt: skip
    assert got.advantages.shape == got.returns.shape == rewards.shape
    for i, (first, stop) in enumerate(itertools.pairwise(starts)):
        here = slice(first, stop)
        expected = answer(
            fastgae.gae, rewards=rewards[here], values=values[here], terminated=ends[here], gamma=0.97,
            last_values=last[i] if bootstrapped else dtype.type(0), mask=None if exists is None else exists[here],
            gae_lambda=float(each[i]) if per_sequence else each,
        )  # fmt: skip
        if bootstrapped:
            assert_same_bits(got.advantages[here], expected.advantages, f"sequence {i}:")
            assert_same_bits(got.returns[here], expected.returns, f"sequence {i}:")
        else:  # the gate of the end leaves out what is 0 here
            np.testing.assert_array_equal(got.advantages[here], expected.advantages)
            np.testing.assert_array_equal(got.returns[here], expected.returns)


def test_packed_coefficients_per_step_and_normalize(backend):
    rewards, values, starts, _, _, rng = packed([5, 7], np.dtype(np.float32))
    each = rng.random(2)
    by_step = np.repeat(each, [5, 7])
    got = fastgae.gae_packed(rewards, values, starts, gae_lambda=by_step, normalize="global", backend=backend)
    plain = fastgae.gae_packed(rewards, values, starts, gae_lambda=each[:, np.newaxis], backend="numpy")
    assert_same_bits(got.advantages, fastgae.normalize(plain.advantages, backend="numpy"))
    assert_same_bits(got.returns, plain.returns)


def test_packed_coefficients_say_by_their_axes_what_they_are_of(backend):
    """There are as many sequences as steps here, because one of the sequences is empty."""
    rewards, values, starts = np.array([1.0, 2.0]), np.ones(2), np.array([0, 0, 2])
    lambdas, given = np.array([0.0, 0.5]), {"gamma": 1.0, "backend": backend}
    per_step = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas, **given)
    per_sequence = fastgae.gae_packed(rewards, values, starts, gae_lambda=lambdas[:, np.newaxis], **given)
    assert per_step.advantages.tolist() == [1.0, 1.0]
    assert per_sequence.advantages.tolist() == [1.5, 1.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cu_seqlens": [0, 3]}, ["cu_seqlens", "4"]),
        ({"cu_seqlens": [1, 4]}, ["cu_seqlens", "0"]),
        ({"cu_seqlens": [0, 3, 2, 4]}, ["cu_seqlens"]),
        ({"cu_seqlens": [0.0, 4.0]}, ["cu_seqlens", "integers"]),
        ({"cu_seqlens": []}, ["cu_seqlens"]),
        ({"rewards": np.ones((4, 1))}, ["rewards", "(4, 1)", "one dimension"]),
        ({"values": np.ones(3)}, ["values", "(3,)"]),
        ({"terminated": np.zeros(3)}, ["terminated", "(3,)"]),
        ({"terminated": np.full(4, 2)}, ["terminated", "0 or 1"]),
        ({"last_values": np.ones(4)}, ["last_values", "(4,)", "(2,)"]),
        ({"gae_lambda": np.ones(3)}, ["gae_lambda", "(3,)", "(4,)", "(2, 1)"]),
        ({"gae_lambda": np.ones(2)}, ["gae_lambda", "(2,)", "per sequence, (2, 1)"]),
        ({"gae_lambda": np.ones((1, 2))}, ["gae_lambda", "(1, 2)", "(2, 1)"]),
        ({"gae_lambda": [[0.5], [2.0]]}, ["gae_lambda", "[0, 1]", "2.0"]),
        ({"normalize": "per_env"}, ["normalize", "global"]),
    ],
    ids=str,
)
def test_packed_input_is_checked(changes, words):
    good = {"rewards": np.ones(4), "values": np.ones(4), "cu_seqlens": np.array([0, 1, 4])}
    with pytest.raises((TypeError, ValueError)) as caught:
        fastgae.gae_packed(**{**good, **changes})
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


@pytest.mark.parametrize("by", ["global", "per_env"])
@pytest.mark.parametrize("masked", [False, True])
def test_normalize_everywhere(backend, dtype, by, masked):
    for layout, size in itertools.product(layouts_of(backend), ((300, 3), (1, 5), (129, 1))):
        array = make_case(layout.size(size), dtype).rewards + dtype.type(3)
        exists = np.random.default_rng(1).random(array.shape) < 0.7 if masked else None
        given = layout.arranged("advantages", array)
        plain = layout.plain("advantages", given)
        here = None if exists is None else layout.arranged("terminated", exists)
        there = None if exists is None else layout.plain("terminated", here)
        expected = answer(fastgae.normalize, advantages=plain, mask=there, by=by)
        got = fastgae.normalize(given, here, by=by, time_axis=layout.time_axis, backend=backend, num_threads=3)
        assert_same_bits(layout.plain("advantages", got), expected, layout.name)
        own = given.copy()
        if own.dtype.isnative:
            assert fastgae.normalize(own, here, by=by, time_axis=layout.time_axis, out=own, backend=backend) is own
            assert_same_bits(layout.plain("advantages", own), expected, layout.name)


def test_normalize_survives_what_float32_sums_do_not(backend):
    array = np.float32(1e4) + np.random.default_rng(0).normal(size=(4096, 32)).astype(np.float32)
    got = fastgae.normalize(array, backend=backend).astype(np.float64)
    assert abs(got.mean()) < 1e-6
    assert got.std() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("by", ["global", "per_env"])
def test_normalize_of_nothing_and_of_what_is_all_the_same(backend, by):
    assert fastgae.normalize(np.empty((0, 3)), by=by, backend=backend).shape == (0, 3)
    assert (fastgae.normalize(np.full((5, 3), 2.0), by=by, backend=backend) == 0).all()
    exists = np.zeros((5, 3), bool)
    assert (fastgae.normalize(np.full((5, 3), np.nan), exists, by=by, backend=backend) == 0).all()


@pytest.mark.parametrize("by", ["global", "per_env"])
def test_normalize_by_the_std_of_a_sample(backend, dtype, by):
    """By the definition, in float64; where only one step exists, its std is unknown."""
    for layout in layouts_of(backend):
        array = make_case(layout.size((129, 4)), dtype).rewards
        given = layout.arranged("advantages", array)
        plain = layout.plain("advantages", given)
        got = fastgae.normalize(given, by=by, ddof=1, eps=0.5, time_axis=layout.time_axis, backend=backend)
        wide, axis = plain.astype(np.float64), 0 if by == "per_env" else None
        expected = (wide - wide.mean(axis)) / (wide.std(axis, ddof=1) + 0.5)
        np.testing.assert_allclose(layout.plain("advantages", got), expected, rtol=4 * np.finfo(dtype).eps, atol=1e-7)
        same = answer(fastgae.normalize, advantages=plain, by=by, ddof=1, eps=0.5)
        assert_same_bits(layout.plain("advantages", got), same, layout.name)
    for few in ([[1.0]], [[1.0], [3.0]]):
        given = np.array(few, dtype)
        assert np.isnan(fastgae.normalize(given, by=by, ddof=len(few), backend=backend)).all()
    assert np.isnan(fastgae.normalize(np.ones((2, 1), dtype), by=by, ddof=10**30, backend=backend)).all()


def test_normalize_by_a_given_mean_and_std(backend, dtype):
    for layout, masked in itertools.product(layouts_of(backend), (False, True)):
        array = make_case(layout.size((129, 4)), dtype).rewards
        exists = np.random.default_rng(1).random(array.shape) < 0.7
        given, here = layout.arranged("advantages", array), layout.arranged("terminated", exists)
        plain, there = layout.plain("advantages", given), layout.plain("terminated", here)
        how = {"mask": here if masked else None, "eps": 0.5, "time_axis": layout.time_axis, "backend": backend}
        mean, std = np.random.default_rng(2).random((2, plain.shape[1]))
        envs, one_step = np.delete(given.shape, layout.time_axis), list(given.shape)
        one_step[layout.time_axis] = 1
        for center, deviation in (
            (mean.reshape(envs), std.reshape(envs)),
            (mean.reshape(one_step), std.reshape(one_step)),
            (0.1, 3),
        ):
            got = fastgae.normalize(given, mean=center, std=deviation, **how)
            scale = 1 / (np.ravel(deviation) + 0.5)
            expected = ((plain.astype(np.float64) - np.ravel(center)) * scale).astype(dtype)
            expected = np.where(there, expected, dtype.type(0)) if masked else expected
            assert_same_bits(layout.plain("advantages", got), expected, layout.name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"by": "env"}, ["by", "'env'", "'per_env'"]),
        ({"mean": 0.0}, ["mean is given without std"]),
        ({"std": 1.0}, ["std is given without mean"]),
        ({"mean": 0.0, "std": -1.0}, ["std must not be negative", "-1.0"]),
        ({"mean": np.zeros(3), "std": 1.0}, ["mean", "(3,)", "one number", "(1, 2)", "(2,)"]),
        ({"mean": 0.0, "std": 1.0, "by": "per_env"}, ["by", "leave by out"]),
        ({"mean": 0.0, "std": 1.0, "ddof": 1}, ["ddof", "leave ddof out"]),
        ({"ddof": -1}, ["ddof", "-1"]),
        ({"eps": -1.0}, ["eps", "-1.0"]),
        ({"mask": np.ones((2, 2))}, ["mask", "(2, 2)", "(3, 2)"]),
        ({"advantages": 1.0}, ["advantages", "scalar"]),
        ({"out": np.ones((2, 2))}, ["out", "(2, 2)", "(3, 2)"]),
        ({"time_axis": 2}, ["time_axis", "2"]),
    ],
    ids=str,
)
def test_normalize_input_is_checked(changes, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        fastgae.normalize(**{"advantages": np.ones((3, 2)), **changes})
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


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


def test_lambdas_are_named_in_errors():
    case = dataclasses.replace(make_case((3, 2), np.dtype(np.float32)), gae_lambda=0.5)
    for function in (fastgae.td_lambda, fastgae.vtrace):
        ratios = {"ratios": case.rewards} if function is fastgae.vtrace else {}
        with pytest.raises(ValueError, match="lambda_ must be in"):
            function(**arguments_of(case), lambda_=2.0, **ratios)
