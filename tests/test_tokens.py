"""Sequences of tokens: terminated left out, and one number in last_values. The explicit form gives the same bits."""

import itertools
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET, WITH_KERNELS, no_short_cut
from support.cases import FEW_SIZES, LARGE_SIZES, LONG_SIZES, SIZES, assert_same_bits, make_case
from support.exactness import answer
from support.functions import FUNCTIONS, parameters
from support.layouts import LAYOUTS, SOME, layouts_of, named
from support.options import arranged

PLAIN = LAYOUTS[0]


def lengths(envs, steps):
    """Return a length for every env, from 0 to all steps."""
    return np.linspace(0, steps, envs).astype(int)


def spans(steps, envs):
    """Return flags of alternating spans, which begin and end anywhere."""
    return np.cumsum(np.random.default_rng([steps, envs]).random((steps, envs)) < 0.2, axis=0) % 2 == 1


# Which steps are tokens that the policy wrote, as (T, N).
MASKS = {
    "no mask": lambda steps, envs: None,
    "right padding": lambda steps, envs: np.arange(steps)[:, np.newaxis] < lengths(envs, steps),
    "left padding": lambda steps, envs: np.arange(steps)[::-1, np.newaxis] < lengths(envs, steps),
    "tool spans": spans,
    "all masked": lambda steps, envs: np.zeros((steps, envs), bool),
    "none masked": lambda steps, envs: np.ones((steps, envs), bool),
}
NUMBERS = {
    "for good": 0.0,
    "an integer": -2,
    "a number": 0.37,
    "no axes": np.array(0.37, np.float32),
    "one per env": None,
}


def forms(size, dtype, mask="no mask", number=None, layout=PLAIN):
    """Return the short form of a call in a layout, and the plain call with flags and one last value for each env."""
    case = make_case(layout.size(size), dtype, "none", "last_values")
    exists = MASKS[mask](*case.rewards.shape)
    short, explicit = arranged(case, layout, {} if exists is None else {"mask": exists})
    del short["terminated"]
    if number is not None:
        short["last_values"] = number
        explicit["last_values"] = np.full(explicit["last_values"].shape, number, dtype)
    return short, explicit


def assert_equal(got, expected, layout=PLAIN, what=""):
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(layout.plain("advantages", array), right, what)


@pytest.mark.parametrize("mask", MASKS)
def test_the_bits_of_the_explicit_form(backend, dtype, mask):
    """Every mask meets every number, and every size meets both."""
    numbers = [*NUMBERS.values()] * 3
    for layout, (place, size) in product(layouts_of(backend, SOME), enumerate(FEW_SIZES)):
        short, explicit = forms(size, dtype, mask, numbers[place + [*MASKS].index(mask)], layout)
        expected, what = answer(fastgae.gae, **explicit), f"{layout.name} {size}"
        assert_equal(fastgae.gae(**short, backend=backend), expected, layout, what)
        with no_short_cut(backend):
            assert_equal(fastgae.gae(**short, backend=backend), expected, layout, f"{what}, the long way")


@pytest.mark.parametrize("mask", ["no mask", "tool spans"])
@pytest.mark.parametrize("size", [*SIZES, *LONG_SIZES, *LARGE_SIZES], ids=str)
def test_every_size(size, mask):
    """The flags that kernels read in place of those left out are only as many as one row or one env has."""
    for layout in named("c", "env_major"):
        short, explicit = forms(size, np.float32, mask, 0.37, layout)
        expected = fastgae.gae(**explicit, backend="numpy")
        for backend, num_threads in product(WITH_KERNELS, (1, 3)):
            got = fastgae.gae(**short, backend=backend, num_threads=num_threads)
            assert_equal(got, expected, layout, f"{backend}, {layout.name}, {num_threads} threads")


@pytest.mark.parametrize("mask", ["right padding", "left padding", "tool spans"])
def test_last_values_follow_the_last_token_that_exists(backend, dtype, mask):
    short, explicit = forms((23, 7), dtype, mask)
    advantages, _ = fastgae.gae(**short, backend=backend)
    for env, exists in enumerate(explicit["mask"].T):
        rewards, values = (explicit[name][exists, env] for name in ("rewards", "values"))
        last = explicit["last_values"][env]
        alone = fastgae.gae(rewards, values, np.zeros(len(rewards), bool), last_values=last, backend="numpy")
        assert_same_bits(advantages[exists, env], alone.advantages)
        assert not advantages[~exists, env].any()
        if len(rewards):
            assert_same_bits(alone.advantages[-1], (rewards[-1] + dtype.type(0.99) * last) - values[-1])


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "no mask"])
@pytest.mark.parametrize("last_advantages", [None, 0.25])
def test_carry_over_gives_the_advantage_of_the_next_token(backend, dtype, mask, last_advantages):
    for layout, size in product(layouts_of(backend, SOME), FEW_SIZES):
        short, explicit = forms(size, dtype, mask, 0.37, layout)
        short["last_advantages"] = explicit["last_advantages"] = last_advantages
        advantages = answer(fastgae.gae, **explicit).advantages.copy()
        following = np.full_like(advantages[:1].sum(axis=0), 0 if last_advantages is None else last_advantages)
        for t in reversed(range(len(advantages))):
            following = advantages[t] = np.where(explicit["mask"][t], advantages[t], following)
        expected = advantages, advantages + explicit["values"]
        what = f"{layout.name} {size}"
        assert_equal(fastgae.gae(**short, carry_over=True, backend=backend), expected, layout, what)
        with no_short_cut(backend):
            got = fastgae.gae(**short, carry_over=True, backend=backend)
            assert_equal(got, expected, layout, f"{what}, the long way")


def test_carry_over_without_a_mask_changes_nothing(backend):
    short, explicit = forms((17, 6), np.dtype(np.float32), number=0.37)
    expected = fastgae.gae(**explicit, backend="numpy")
    assert_equal(fastgae.gae(**short, carry_over=True, backend=backend), expected)


# The other functions in which last_values may stand without terminated, and what each of them needs besides.
OTHERS = {
    "td_lambda": {},
    "upgo": {},
    "vtrace": {"ratios": 0.7},
    "n_step_returns": {"n": 3},
    "discounted_returns": {},
}


@pytest.mark.parametrize("function", OTHERS)
@pytest.mark.parametrize("backend", ONE_TARGET)
@pytest.mark.parametrize("layout", ["c", "env_major"], indirect=True)
def test_every_function(backend, dtype, layout, function):
    takes = parameters(function)

    def results(given, axis, backend):
        given = {**given, **OTHERS[function], "time_axis": axis, "backend": backend}
        if "ratios" in given:
            given["ratios"] = np.full_like(given["rewards"], given["ratios"])
        result = getattr(fastgae, function)(**{name: value for name, value in given.items() if name in takes})
        return result if isinstance(result, tuple) else (result,)

    for size, number in product(FEW_SIZES, (0.0, 0.37, None)):
        short, explicit = forms(size, dtype, "tool spans", number, layout)
        assert_equal(results(short, layout.time_axis, backend), results(explicit, 0, "numpy"), layout, f"{size}")


def test_no_function_is_missing():
    """In a packed call, terminated could always be left out; diagnose returns no arrays."""
    takes = {name for name in FUNCTIONS if "last_values" in parameters(name)}
    assert takes == {"gae", *OTHERS, "gae_packed", "diagnose"}


@pytest.mark.parametrize("number", [0.37, -1, np.float32(0.37), np.array(0.37)])
def test_a_number_for_the_state_after_the_last_step(backend, number):
    """One number stands for all envs, and for all sequences, wherever an argument has one for each of them."""
    dtype = np.result_type(np.float32, number) if isinstance(number, np.ndarray) else np.dtype(np.float32)
    case = make_case((17, 6), np.float32, "random", "last_values")
    envs, sequences = np.full(6, number, dtype), np.full(3, number, dtype)
    given, cu_seqlens = (case.rewards[:, 0], case.values[:, 0]), np.array([0, 5, 5, 17])
    for one, all_of_them in [
        [
            fastgae.gae(**{**case.arguments(), "last_advantages": last}, time_axis=0, backend=backend)
            for last in (number, envs)
        ],
        [fastgae.reverse_scan(case.rewards, 0.5, initial=last, backend=backend)[np.newaxis] for last in (number, envs)],
        [fastgae.gae_packed(*given, cu_seqlens, last_values=last, backend=backend) for last in (number, sequences)],
    ]:
        for array, right in zip(one, all_of_them, strict=True):
            assert_same_bits(array, right)


@pytest.mark.parametrize("function", [fastgae.gae, fastgae.td_lambda, fastgae.upgo, fastgae.diagnose])
def test_without_last_values_terminated_is_needed(function):
    rewards = np.ones((4, 3))
    with pytest.raises(ValueError, match=r"terminated and last_values are both missing: .* 0 if it ended"):
        function(rewards, rewards)
    for given in ({"values": np.ones((5, 3))}, {"values": rewards, "next_values": rewards}):
        with pytest.raises(ValueError, match=r"terminated is missing: pass terminated, .* all False"):
            function(rewards, **given)


def test_discounted_returns_need_one_of_them():
    with pytest.raises(ValueError, match="terminated and last_values are both missing"):
        fastgae.discounted_returns(np.ones((4, 3)))
    with pytest.raises(ValueError, match="truncated is given without terminated"):
        fastgae.discounted_returns(np.ones(4), truncated=np.ones(4, bool), final_values=np.ones(4), last_values=0.0)


def answers(mask, seed=0, steps=64, envs=32):
    """Return the call of some answers, with scores at their ends and values that guess them ever better."""
    rng = np.random.default_rng(seed)
    exists = np.arange(steps)[:, np.newaxis] < rng.integers(0, steps + 1, envs)
    exists = {
        "none": np.ones_like(exists),
        "right padding": exists,
        "full-length answers": exists | (np.arange(envs) % 2 == 0),
        "left padding": exists[::-1],
        "prompts": exists & (np.arange(steps)[:, np.newaxis] >= rng.integers(0, steps // 2, envs)),
        "tool spans": exists & np.repeat(rng.random((steps // 8, envs)) < 0.8, 8, axis=0),
        "random": rng.random(exists.shape) < rng.random(),
    }[mask]
    remaining = np.cumsum(exists[::-1], axis=0)[::-1]
    score = rng.normal(size=envs)
    rewards = np.where(exists & (remaining == 1), score, 0.0)
    values = score * np.exp(-remaining / steps) + rng.normal(0.0, 0.1, exists.shape)
    call = {"rewards": rewards, "values": values, "last_values": 0.0, "gamma": 1.0}
    return call if mask == "none" else {**call, "mask": exists}


ANSWERS = ("none", "right padding", "full-length answers", "left padding", "prompts", "tool spans", "random")


@pytest.mark.parametrize("mask", ANSWERS)
def test_diagnose_finds_nothing_in_correct_calls(mask):
    for seed in range(20):
        call = answers(mask, seed)
        explicit = {**call, "terminated": np.zeros(call["rewards"].shape, bool), "last_values": np.zeros(32)}
        token_axis_last = {name: np.transpose(a) if np.ndim(a) else a for name, a in call.items()} | {"time_axis": 1}
        for given in (call, token_axis_last, *([explicit] * (mask != "none"))):
            found = fastgae.diagnose(**given)
            assert not found, str(found)
            assert f"{found.overview.tokens:,} tokens of 32 sequences" in str(found)
            assert "\n  sequences  32; " in str(found)
    assert found.overview.tokens == call.get("mask", call["rewards"] < np.inf).sum()


@pytest.mark.parametrize("mask", ["right padding", "full-length answers", "left padding", "prompts", "tool spans"])
def test_diagnose_sees_tokens_along_another_axis(mask):
    for seed in range(20):
        call = {name: np.transpose(a) if np.ndim(a) else a for name, a in answers(mask, seed).items()}
        (finding,) = fastgae.diagnose(**call)
        assert finding.detector == "axes_swapped"
        assert "axes of time and sequences" in finding.what
        assert finding.change == "pass time_axis=1"


def scored(exists, values, scores):
    """Return a call whose rewards are the scores, at the last token of each answer."""
    last = exists & (np.cumsum(exists[::-1], axis=0)[::-1] == 1)
    return {"rewards": np.where(last, scores, 0.0), "values": values, "mask": exists, "last_values": 0.0, "gamma": 1.0}


def odd_answers(seed):
    """Yield correct calls that look like mistakes in the rollout of an environment."""
    rng = np.random.default_rng(seed)
    t, noise = np.arange(128)[:, np.newaxis], rng.normal(0.0, 0.01, (128, 64))
    lengths = np.sort(rng.integers(40, 129, 64))
    whole, exists = np.ones((128, 64), bool), t < rng.permutation(lengths)
    yield (
        "each answer gets to a solution once",
        {
            **scored(whole, np.where(t < rng.integers(20, 100, 64), 0.3, 1.0) + noise, np.ones(64)),
            "mask": None,
        },
    )
    yield (
        "each answer gets to a solution again and again",
        scored(exists, 1.0 - t % rng.integers(8, 20, 64) / 30 + noise, np.ones(64)),
    )
    yield (
        "a tool at the same tokens of all answers, which are sorted by length",
        scored((t < lengths) & (t % 3 > 0), noise, np.ones(64)),
    )
    scores = rng.normal(size=64)
    foreseen = np.exp(-np.cumsum(exists[::-1], axis=0)[::-1] / 20)
    yield "values that do not foresee the score yet", scored(exists, scores * foreseen + noise, scores)
    few = scored(exists, scores + noise, scores)
    yield "few answers", {name: a[:, :3] if np.ndim(a) else a for name, a in few.items()} | {"gamma": 0.99}
    short = np.arange(64) % 2 == 0
    yield "exact values, which are 0 for full-length answers", scored(whole & (~short | (t < 20)), whole * short, short)


def test_diagnose_finds_nothing_in_odd_answers():
    for what, call in itertools.chain.from_iterable(map(odd_answers, range(10))):
        found = fastgae.diagnose(**call)
        assert not found, f"{what}: {found}"


def test_diagnose_finds_mistakes_in_sequences():
    call = answers("full-length answers")
    (finding,) = fastgae.diagnose(**{**call, "last_values": call["values"][-1]})
    assert "equals values[-1] in all 16 environments" in finding.what
    call = answers("right padding", steps=512, envs=128)
    (finding,) = fastgae.diagnose(**{**call, "values": call["rewards"].sum(0) + 0 * call["values"], "gamma": 0.99})
    assert "values of another gamma than 0.99: with 1 " in finding.what


def test_diagnose_of_sequences_that_are_all_the_same():
    """Equal values in all sequences do not say which axis is time, and V without an error in most steps is no fault."""
    values = np.repeat(np.random.default_rng(0).normal(size=(64, 1)), 8, axis=1)
    assert not fastgae.diagnose(0 * values, values, last_values=0.0)
    values = np.repeat(np.arange(8.0), 32)[:, np.newaxis] * np.ones(8)
    (finding,) = fastgae.diagnose(0 * values, values, np.zeros(values.shape), last_values=values[-1] + 1, gamma=1.0)
    assert "the TD error is 1 there and 0 at the other steps" in finding.what


def test_diagnose_takes_the_same_call():
    short, explicit = forms((64, 4), np.float64, "right padding", 0.0)
    assert fastgae.diagnose(**short).as_dict() == fastgae.diagnose(**explicit).as_dict()
