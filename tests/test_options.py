"""What fastgae.gae may be told beyond the plain case: right by identities, and the same bits everywhere."""

import dataclasses
import enum
import warnings
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS, WITH_KERNELS
from support.cases import LARGE_SIZES, assert_same_bits, make_case
from support.exactness import reference
from support.layouts import LAYOUTS, SOME, layouts_of, named
from support.options import (
    NEXT_STEP,
    OPTIONS,
    always,
    arranged,
    assert_results,
    check,
    coefficients,
    last_advantages,
    mask,
    pick,
    prev_done,
    row,
    some_mask,
    together,
)

# Around lanes, tiles and blocks of normalize.
SIZES = [
    (1, 1),
    (1, 17),
    (2, 7),
    (3, 8),
    (9, 1),
    (17, 33),
    (16, 64),
    (65, 9),
    (130, 3),
    (33, 7),
    (127, 9),
    (128, 2),
    (129, 16),
    (257, 5),
]


def masked_away(case, mask):
    """NaN in every number and True in every flag of the steps that do not exist."""

    def spoil(name, array):
        if array.shape != mask.shape and name != "values":
            return array
        spoiled = array.copy()
        spoiled[: len(mask)][~mask] = np.nan if array.dtype != bool else True
        return spoiled

    return case.mapped(spoil)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(backend, dtype, name):
    for layout in layouts_of(backend, SOME):
        in_every_bootstrap(backend, dtype, layout, OPTIONS[name])


def test_every_layout(backend, dtype):
    for layout in layouts_of(backend):
        in_every_bootstrap(backend, dtype, layout, OPTIONS["all"])


def in_every_bootstrap(backend, dtype, layout, given):
    for number, bootstrap in enumerate(("last_values", "next_values", "final_dense", "final_sparse")):
        size = layout.size([(9, 5), (17, 7), (33, 3), (3, 16)][number])
        case = make_case(size, dtype, "random", bootstrap)
        check(case, layout, backend, given(case))


@pytest.mark.parametrize("backend", WITH_KERNELS)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_size(backend, dtype, name):
    for (number, size), layout in product(enumerate(SIZES), named("c", "env_major")):
        bootstrap = ("longer_values", "last_values", "next_values", "final_dense", "final_sparse")[number % 5]
        case = make_case(layout.size(size), dtype, "random", bootstrap)
        check(case, layout, backend, OPTIONS[name](case))


@pytest.mark.parametrize("backend", WITH_KERNELS)
@pytest.mark.parametrize(
    "given",
    [NEXT_STEP, together(NEXT_STEP, mask), together(NEXT_STEP, mask, always(carry_over=True))],
    ids=["alone", "mask", "carry_over"],
)
def test_next_step_everywhere(backend, dtype, given):
    for layout, size in product(layouts_of(backend, SOME), SIZES):
        case = make_case(layout.size(size), dtype, "random", "next_values")
        case = dataclasses.replace(case, next_values=None, last_values=case.next_values[-1])
        check(case, layout, backend, given(case))


@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_large(size):
    case = make_case(size, np.dtype(np.float32), "random", "last_values")
    given = together(mask, row("gamma"), always(normalize="global"))(case)
    of_layouts = {layout: arranged(case, layout, given) for layout in named("c", "env_major")}
    expected = fastgae.gae(**of_layouts[LAYOUTS[0]][1], backend="numpy")
    for (layout, (here, _)), backend in product(of_layouts.items(), WITH_KERNELS):
        assert_results(layout, fastgae.gae(**here, backend=backend), expected, f"{backend} {layout.name}")


@pytest.mark.skipif("cpp:baseline" not in BACKENDS, reason="no other backend has a short cut")
@pytest.mark.parametrize("name", [*OPTIONS, "next_step"])
@pytest.mark.parametrize("layout", ["c", "env_major"], indirect=True)
def test_plain_arrays_take_the_short_cut(dtype, layout, name, monkeypatch):
    """Nothing of the long way is there."""
    given = NEXT_STEP if name == "next_step" else OPTIONS[name]
    case = make_case(layout.size((17, 9)), dtype, "random", "last_values")
    here, there = arranged(case, layout, given(case))
    here.pop("out", None)
    expected = fastgae.gae(**there, backend="numpy")
    monkeypatch.delattr(fastgae._backends.cpp, "gae")
    assert_results(layout, fastgae.gae(**here, backend="cpp"), expected)


@pytest.mark.parametrize("name", ["mask", "last_advantages", "ratios"])
def test_outputs_that_lie_on_an_option(backend, dtype, name):
    """What is written first must not be read afterwards."""
    case = make_case((33, 9), dtype, "random", "last_values")
    options = {"mask": some_mask(case), **last_advantages(case), "ratios": np.abs(case.rewards)}
    function = fastgae.vtrace if name == "ratios" else fastgae.gae
    arguments, given = case.arguments(), {name: options[name]}
    if name == "ratios":
        arguments["lambda_"] = arguments.pop("gae_lambda")
    expected = function(**arguments, **given, backend="numpy")
    memory = np.empty(2 * case.rewards.size, dtype)
    advantages, returns = memory.reshape(2, *case.rewards.shape)
    there = memory.view(given[name].dtype)[: given[name].size].reshape(given[name].shape)
    there[...] = given[name]
    got = function(**arguments, **{name: there}, out=(advantages, returns), backend=backend)
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right)


def envs_of(case):
    return range(case.rewards.shape[1])


@pytest.mark.parametrize("bootstrap", ["last_values", "next_values", "final_dense"])
def test_a_masked_step_is_as_if_it_had_been_cut_out(backend, dtype, bootstrap):
    case = make_case((33, 9), dtype, "random", bootstrap)
    exists = some_mask(case)
    exists[:, 0], exists[:, 1] = False, True
    case = masked_away(case, exists)
    advantages, returns = fastgae.gae(**case.arguments(), mask=exists, backend=backend)
    for env in envs_of(case):
        real = exists[:, env]
        one = case.mapped(lambda name, a, env=env, real=real: a[env] if a.ndim == 1 else a[real, env])
        assert_same_bits(advantages[~real, env], np.zeros(np.count_nonzero(~real), dtype))
        assert_same_bits(returns[~real, env], case.values[~real, env])
        if real.any():
            plain = fastgae.gae(**one.arguments(), backend="numpy")
            assert_same_bits(advantages[real, env], plain.advantages)
            assert_same_bits(returns[real, env], plain.returns)


class AutoresetMode(enum.Enum):
    """Gymnasium's has the same names."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"


@pytest.mark.parametrize("mode", ["next_step", "NEXT_STEP", AutoresetMode.NEXT_STEP], ids=str)
def test_next_step_drops_reset_rows_and_bootstraps_from_them(backend, dtype, mode):
    case = make_case((33, 9), dtype, "random", "next_values")
    ends = case.terminated | case.truncated
    before = pick(case, "before").random(9) < 0.5
    real = np.vstack([~before, ~ends[:-1]])
    last = case.next_values[-1]
    got = fastgae.gae(
        case.rewards, case.values, case.terminated, case.truncated, last_values=last, autoreset=mode, prev_done=before,
        backend=backend,
    )  # fmt: skip
    following = np.vstack([case.values[1:], last[np.newaxis]])
    explicit = dataclasses.replace(case, next_values=following).arguments()
    expected = fastgae.gae(**explicit, mask=real, backend="numpy")
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right)
    assert (got.advantages[~real] == 0).all()
    assert_same_bits(got.returns[~real], case.values[~real])
    assert_same_bits(real, fastgae.valid_steps(case.terminated, case.truncated, before))


def test_next_step_with_a_mask_is_as_if_the_masked_rows_had_been_cut_out(backend, dtype):
    """A masked row between the end of an episode and the reset row has no effect, whatever its flags are."""
    case = make_case((33, 9), dtype, "random", "next_values")
    exists, last, before = some_mask(case), case.next_values[-1], prev_done(case)["prev_done"]
    rollout = case.rewards, case.values, case.terminated, case.truncated
    how = {"autoreset": "next_step", "last_values": last, "prev_done": before}
    got = fastgae.gae(*rollout, mask=exists, **how, backend=backend)
    for env in envs_of(case):
        real = exists[:, env]
        of_env = {name: given[env] if isinstance(given, np.ndarray) else given for name, given in how.items()}
        alone = fastgae.gae(*(array[real, env] for array in rollout), **of_env, backend="numpy")
        assert_same_bits(got.advantages[real, env], alone.advantages)
        assert_same_bits(got.returns[real, env], alone.returns)


@pytest.mark.parametrize("narrow", [False, True])
def test_next_step_without_prev_done_warns_where_row_0_looks_like_a_reset_row(backend, narrow):
    case = make_case((33, 9), np.float32, "random", "last_values")
    case.terminated[0, :2] = True, False
    rewards = (1 + abs(case.rewards)).astype(np.float16 if narrow else np.float32)
    rewards[0] = rewards[1:][case.terminated[:-1]] = 0  # reset rows

    def warned(rewards, **how):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            how = {"last_values": case.last_values, "autoreset": "next_step", "backend": backend, **how}
            fastgae.gae(rewards, case.values[:33], case.terminated, **how)
        assert all(warning.filename == __file__ for warning in caught)
        return [str(warning.message) for warning in caught]

    count = np.count_nonzero(~case.terminated[0])
    (message,) = warned(rewards)
    for words in (f"reset row in {count} of 9 environments", "Pass prev_done", "all False for the first rollout"):
        assert words in message
    assert warned(rewards, prev_done=np.zeros(9)) == warned(rewards, autoreset="same_step") == []
    assert warned(np.where(np.arange(33)[:, None] == 0, rewards + 1, rewards)) == []  # row 0 has rewards
    sparse = rewards.copy()
    sparse[5][~case.terminated[4]] = 0  # so a reward of 0 says nothing
    assert warned(sparse) == []
    nonzero = rewards.copy()
    nonzero[1:][case.terminated[:-1]] = 1  # the rows after a done have rewards
    assert warned(nonzero) == []


@pytest.mark.parametrize("mode", ["same_step", "disabled", AutoresetMode.SAME_STEP], ids=str)
def test_other_modes_change_nothing(backend, mode):
    case = make_case((9, 5), np.dtype(np.float32))
    got = fastgae.gae(**case.arguments(), autoreset=mode, backend=backend)
    for array, right in zip(got, reference(case), strict=True):
        assert_same_bits(array, right)


@pytest.mark.parametrize("mode", [None, "next_step"])
def test_pieces_have_the_bits_of_the_whole(backend, dtype, mode):
    case = make_case((40, 7), dtype, "random", "next_values")
    whole = fastgae.gae(**case.arguments(), autoreset=mode, backend=backend)
    ends = case.terminated | case.truncated
    following = None
    for first, last in ((29, 40), (13, 29), (1, 13), (0, 1)):
        piece = case.mapped(lambda name, a, first=first, last=last: a[first:last])
        options = {"autoreset": mode, "prev_done": ends[first - 1] if mode and first else None}
        got = fastgae.gae(**piece.arguments(), **options, last_advantages=following, backend=backend)
        assert_same_bits(got.advantages, whole.advantages[first:last])
        assert_same_bits(got.returns, whole.returns[first:last])
        following = got.advantages[0]


@pytest.mark.parametrize("name", ["gamma", "gae_lambda"])
def test_a_coefficient_per_env_is_that_of_each_env(backend, dtype, name):
    case = make_case((33, 5), dtype)
    each = np.array([0.0, 0.5, 0.9, 0.99, 1.0])
    got = fastgae.gae(**{**case.arguments(), name: each[np.newaxis]}, backend=backend)
    for env in envs_of(case):
        one = {**case.envs([env]).arguments(), name: float(each[env])}
        for array, right in zip(got, fastgae.gae(**one, backend="numpy"), strict=True):
            assert_same_bits(array[:, [env]], right)


def test_coefficients_per_step(backend):
    """By the definition, in float64."""
    case = make_case((33, 5), np.dtype(np.float64), "random", "final_dense")
    gamma, gae_lambda = coefficients(case, "gamma", (33, 5)), coefficients(case, "gae_lambda", (33, 1))
    got = fastgae.gae(**{**case.arguments(), "gamma": gamma, "gae_lambda": gae_lambda}, backend=backend)
    following = np.vstack([case.values[1:], case.last_values])
    following = np.where(case.truncated, case.final_values, following)
    expected, later = np.zeros((33, 5)), np.zeros(5)
    for t in reversed(range(33)):
        delta = case.rewards[t] + np.where(case.terminated[t], 0, gamma[t] * following[t]) - case.values[t]
        closed = case.terminated[t] | case.truncated[t]
        later = expected[t] = delta + np.where(closed, 0, gamma[t] * gae_lambda[t] * later)
    np.testing.assert_allclose(got.advantages, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.returns, expected + case.values, rtol=1e-12, atol=1e-12)


def test_gamma_lambda_of_arrays_is_one_float64_product_rounded_once(backend):
    gamma, gae_lambda = np.float64([[0.997, 0.98]]), 0.93
    rewards, values = np.float32([[0, 0], [1, 1]]), np.zeros((3, 2), np.float32)
    got = fastgae.gae(rewards, values, np.zeros((2, 2)), gamma=gamma, gae_lambda=gae_lambda, backend=backend)
    assert_same_bits(got.advantages[:1], (gamma * gae_lambda).astype(np.float32))


def test_returns_lambda_is_the_returns_of_that_lambda(backend, dtype):
    case = make_case((33, 9), dtype)
    got = fastgae.gae(**case.arguments(), returns_lambda=0.3, backend=backend)
    assert_same_bits(got.advantages, reference(case).advantages)
    assert_same_bits(got.returns, reference(dataclasses.replace(case, gae_lambda=0.3)).returns)


def test_tail_normalized_averages_the_advantages_that_there_are(backend):
    """A_t = sum over k of lambda^k A_t^(k) over the sum of lambda^k, for every k-step advantage up to the end."""
    case = make_case((12, 4), np.dtype(np.float64), "random", "last_values", gamma=0.9, gae_lambda=0.8)
    got = fastgae.gae(**case.arguments(), tail_normalized=True, backend=backend)
    values = np.vstack([case.values, case.last_values])
    expected = np.zeros((12, 4))
    for env in range(4):
        for t in range(12):
            total, discounted, weights, k = 0.0, 0.0, 0.0, 0
            while True:
                ended = case.terminated[t + k, env]
                bootstrap = 0.0 if ended else 0.9 ** (k + 1) * values[t + k + 1, env]
                discounted += 0.9**k * case.rewards[t + k, env]
                total += 0.8**k * (discounted + bootstrap - values[t, env])
                weights += 0.8**k
                k += 1
                if ended or t + k == 12:
                    break
            expected[t, env] = total / weights
    np.testing.assert_allclose(got.advantages, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.returns, expected + case.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("normalize", ["global", "per_env"])
def test_normalize_is_mean_0_and_std_1_of_the_real_steps(backend, dtype, normalize):
    case = make_case((300, 6), dtype)
    exists = some_mask(case)
    plain = fastgae.gae(**case.arguments(), mask=exists, backend="numpy")
    got = fastgae.gae(**case.arguments(), mask=exists, normalize=normalize, backend=backend)
    assert_same_bits(got.returns, plain.returns)
    assert (got.advantages[~exists] == 0).all()
    groups = [exists] if normalize == "global" else [exists & (np.arange(6) == env) for env in range(6)]
    for group in groups:
        advantages = plain.advantages[group].astype(np.float64)
        expected = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        np.testing.assert_allclose(got.advantages[group], expected, rtol=1e-5, atol=1e-6)
    assert_same_bits(got.advantages, fastgae.normalize(plain.advantages, exists, by=normalize, backend="numpy"))
