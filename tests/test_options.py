"""What fastgae.gae may be told beyond the plain case: right by identities, and the same bits everywhere."""

import dataclasses
import enum
import warnings
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import WITH_KERNELS
from support.cases import LARGE_SIZES, assert_same_bits, make_case
from support.layouts import LAYOUTS, named
from support.options import (
    always,
    arranged,
    assert_results,
    last_advantages,
    mask,
    pick,
    row,
    some_mask,
    together,
)


@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_large(size):
    case = make_case(size, np.dtype(np.float32), "random", "last_values")
    given = together(mask, row("gamma"), always(normalize="global"))(case)
    of_layouts = {layout: arranged(case, layout, given) for layout in named("c", "env_major")}
    expected = fastgae.gae(**of_layouts[LAYOUTS[0]][1], backend="numpy")
    for (layout, (here, _)), backend in product(of_layouts.items(), WITH_KERNELS):
        assert_results(layout, fastgae.gae(**here, backend=backend), expected, f"{backend} {layout.name}")


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
