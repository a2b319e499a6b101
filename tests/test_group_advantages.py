"""Advantages relative to a group: against fractions, in every order, and with labels and tensors of every kind."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

from fastgae import group_advantages
from fastgae._equation.exact_sums import means_by_group
from support.cases import assert_same_bits
from support.functions import converted

SETTINGS = [
    {"baseline": baseline, "scale": scale, "ddof": ddof}
    for baseline in ("mean", "leave_one_out", "none")
    for scale, ddof in (("none", 1), ("std", 0), ("std", 1), ("std", 3))
]
BATCH = [{**each, "scale": "batch"} for each in SETTINGS if each["scale"] == "std"]
KINDS_OF_REWARDS = {
    "0 or 1": lambda rng, size: rng.integers(0, 2, size),
    "scores": lambda rng, size: rng.normal(size=size),
    "one value": lambda rng, size: np.full(size, 0.1),
    "one value, mostly": lambda rng, size: np.where(rng.random(size) < 0.35, 1.0, 0.1),
    "far from 0": lambda rng, size: 1e9 + rng.integers(0, 3, size) / 10,
    "all exponents": lambda rng, size: rng.normal(size=size) * 2.0 ** rng.integers(-100, 100, size),
    "cancelling": lambda rng, size: (
        rng.choice([-1, 1], size) * np.where(rng.random(size) < 0.5, 1, 2**-50 * rng.random(size))
    ),
}


def answers(kind, dtype, size=60, seed=0):
    rng = np.random.default_rng([seed, size])
    rewards = KINDS_OF_REWARDS[kind](rng, size).astype(dtype)
    return rewards, rng.integers(-3, 8, size) * 10**12, rng.random(size) < 0.9


@functools.cache
def mean_and_squares(numbers):
    """Return the mean, and the sum of the squared differences from it, as fractions."""
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / max(len(exact), 1)
    return mean, sum((each - mean) ** 2 for each in exact)


def by_definition(rewards, groups, mask, baseline, scale, ddof, eps):
    """Fractions, but for the root."""
    rewards, result = rewards.tolist(), np.zeros(len(rewards))
    for i in np.flatnonzero(mask):
        group = [j for j in np.flatnonzero(mask) if groups[j] == groups[i]]
        used = tuple(rewards[j] for j in group if j != i or baseline != "leave_one_out")
        difference = Fraction(rewards[i]) - (0 if baseline == "none" else mean_and_squares(used)[0])
        if len(group) == 1 and baseline != "none":
            difference = Fraction(0)
        if scale == "batch":
            used = tuple(rewards[j] for j in np.flatnonzero(mask))
        variance = mean_and_squares(used)[1] / (len(used) - ddof) if len(used) > ddof else Fraction(0)
        divided = scale != "none" and variance > 0
        result[i] = float(difference) / (float(variance) ** 0.5 + eps if divided else 1.0)
    return result


# Labels that NumPy would join or refuse, though Python tells them apart.
ALIKE = [1, "1", b"1", "1\0", "", "\0", ("a", 1), ("a", "1"), None, -1, 2**63, 2**64]


@pytest.mark.parametrize("labels", ["integers", "objects"])
@pytest.mark.parametrize("kind", KINDS_OF_REWARDS)
def test_by_definition(kind, dtype, labels):
    rewards, groups, mask = answers(kind, dtype, 40)
    if labels == "objects":
        groups = [ALIKE[each // 10**12] for each in groups]
    for settings in SETTINGS + BATCH:
        got = group_advantages(rewards, groups, mask=mask, eps=1e-4, **settings)
        expected = by_definition(rewards, groups, mask, eps=1e-4, **settings)
        assert got.dtype == dtype
        rtol = 2e-7 if dtype == np.float32 else 1e-14
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol, err_msg=str(settings))


def test_the_defaults_are_those_of_grpo():
    rewards, groups, _ = answers("scores", np.float64)
    named = group_advantages(rewards, groups, baseline="mean", scale="std", ddof=1, eps=1e-6)
    assert_same_bits(group_advantages(rewards, groups), named)


def test_sums_are_rounded_once():
    rng = np.random.default_rng(5)
    for kind in KINDS_OF_REWARDS:
        numbers, group = answers(kind, np.float64, 3000)[0], rng.integers(0, 40, 3000)
        expected = [math.fsum(numbers[group == each]) / np.count_nonzero(group == each) for each in range(40)]
        assert_same_bits(means_by_group(numbers, group, np.bincount(group)), np.array(expected))
    just_above_the_middle = np.array([2.0**53, 1.0, 2.0**-60])
    assert means_by_group(just_above_the_middle, np.zeros(3, int), np.array([3])) == (2.0**53 + 2) / 3
    far_apart = means_by_group(np.array([2.0**1023, 2.0**1023, 3e-300]), np.array([0, 0, 1]), np.array([2, 1]))
    assert_same_bits(far_apart, np.array([2.0**1023, 3e-300]))


def test_neither_the_order_nor_other_groups_change_a_bit(dtype):
    rng = np.random.default_rng(1)
    for kind in KINDS_OF_REWARDS:
        rewards, groups, mask = answers(kind, dtype, 500)
        order, others = rng.permutation(500), 2.0**90 * rng.normal(size=9).astype(dtype)
        for settings in SETTINGS + BATCH:
            expected = group_advantages(rewards, groups, mask=mask, **settings)
            permuted = group_advantages(rewards[order], groups[order], mask=mask[order], **settings)
            assert_same_bits(permuted, expected[order])
            if settings in BATCH:
                continue
            more = (others, rewards), (np.full(9, 99), groups), (np.ones(9, bool), mask)
            rewards_of_more, groups_of_more, mask_of_more = map(np.concatenate, more)
            got = group_advantages(rewards_of_more, groups_of_more, mask=mask_of_more, **settings)
            assert_same_bits(got[9:], expected)


def test_labels_of_every_kind():
    rewards, groups, _ = answers("scores", np.float64)
    expected = group_advantages(rewards, groups)
    numbers = groups // 10**12
    for labels in (
        numbers.astype(np.int8),
        (numbers - numbers.min()).astype(np.uint64) + np.uint64(2**64 - 20),
        numbers.astype(str),
        numbers.astype(bytes),
        numbers.astype(np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else str),
        [("prompt", each) for each in numbers.tolist()],
        [None if each == 0 else each for each in numbers.tolist()],
        np.where(numbers > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min),
        np.where(numbers > 0, np.int8(100), np.int8(-100)),  # whose difference is no int8
    ):
        array = np.empty(len(rewards), object)
        array[:] = labels
        same = group_advantages(rewards, array)
        assert_same_bits(same, group_advantages(rewards, labels) if isinstance(labels, np.ndarray) else expected)
    assert_same_bits(group_advantages(rewards.reshape(12, 5), groups.reshape(12, 5)), expected.reshape(12, 5))
    rows = [tuple(ALIKE[each // 10**12] for each in row) for row in groups.reshape(12, 5)]
    assert_same_bits(group_advantages(rewards.reshape(12, 5), rows), expected.reshape(12, 5))


def test_nan_and_infinity_stay_in_their_group():
    rewards = np.array([np.nan, 1, np.inf, 2, np.inf, -np.inf, 0, 1, np.nan, 3])
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 5])
    for settings in SETTINGS:
        got = group_advantages(rewards, groups, **settings)
        assert np.isfinite(got[[6, 7, 9]]).all(), settings
        assert settings["baseline"] == "none" or np.isnan(got[[0, 1, 2, 3, 4, 5, 8]]).all(), settings
    unscored = np.isnan(rewards)
    assert_same_bits(group_advantages(rewards, groups, mask=~unscored)[[0, 1, 8]], np.zeros(3))
    huge = group_advantages(np.array([1.7e308, 1.7e308, 0.8e308, 5e-324, 0.0]), [0, 0, 0, 1, 1], scale="none")
    assert np.isfinite(huge).all()
    assert np.allclose(huge[:3] / 1e308, [0.3, 0.3, -0.6])


def test_results_for_few_answers():
    assert group_advantages([], []).shape == (0,)
    assert group_advantages(np.zeros((0, 3), np.float32), np.zeros((0, 3), int)).shape == (0, 3)
    rewards, groups = np.array([1.0, 2.0, 4.0]), ["a", "a", "b"]
    assert_same_bits(group_advantages(rewards, groups, scale=None), np.array([-0.5, 0.5, 0.0]))
    assert_same_bits(group_advantages(rewards, groups, baseline=None, scale=None), rewards)
    for settings in SETTINGS:
        alone = group_advantages([5.0], ["x"], **settings)
        assert alone == (5.0 if settings["baseline"] == "none" else 0.0)
        equal = group_advantages([0.1] * 3, [0] * 3, eps=0.0, **settings)
        assert (equal == (0.1 if settings["baseline"] == "none" else 0.0)).all()
    assert not group_advantages([1, 2, 3], [0, 0, 0], mask=[0, 0, 0]).any()
    narrow = group_advantages(np.array([1, 0], np.float16), [0, 0], eps=0.0)
    assert narrow.dtype == np.float32
    assert np.allclose(narrow, [0.5**0.5, -(0.5**0.5)])


def test_a_trajectory_counts_once():
    """Its samples, such as turns, have its whole reward, and their number has no effect."""
    rng = np.random.default_rng(2)
    whole, prompt = rng.normal(size=12), np.repeat([0, 1, 2], 4)
    number = np.tile(np.arange(4), 3)  # counted from 0 in each group
    sample = rng.permutation(np.repeat(np.arange(12), rng.integers(1, 6, 12)))
    for settings in SETTINGS:
        got = group_advantages(whole[sample], prompt[sample], trajectories=number[sample], **settings)
        assert_same_bits(got, group_advantages(whole, prompt, **settings)[sample])
    kept = np.isin(sample, [0, 1, 5, 6, 7, 8])
    rewards = np.where(kept, whole[sample], np.nan)
    got = group_advantages(rewards, prompt[sample], trajectories=number[sample], mask=kept)
    few = [0, 1, 5, 6, 7, 8]
    expected = np.zeros(12)
    expected[few] = group_advantages(whole[few], prompt[few])
    assert_same_bits(got, np.where(kept, expected[sample], 0))
    for other in (2.0, np.nan):
        with pytest.raises(ValueError, match=f"rewards has 1.0 and {other} for samples of one trajectory"):
            group_advantages([1.0, other], [0, 0], trajectories=["a", "a"])
    assert np.isnan(group_advantages([np.nan, np.nan, 1.0], [0, 0, 0], trajectories=[1, 1, 2])).all()


def test_tensors():
    torch = pytest.importorskip("torch")
    rewards, groups, mask = answers("scores", np.float32)
    expected = group_advantages(rewards, groups, mask=mask)
    got = group_advantages(torch.from_numpy(rewards), torch.from_numpy(groups), mask=torch.from_numpy(mask))
    assert isinstance(got, torch.Tensor)
    assert_same_bits(got.numpy(), expected)
    texts = group_advantages(torch.from_numpy(rewards).bfloat16().requires_grad_(), groups.astype(str))
    assert texts.dtype == torch.float32
    assert not texts.requires_grad
    with pytest.raises(TypeError, match=r"needs the numbers themselves: call it outside of torch\.compile and"):
        torch.func.vmap(group_advantages)(torch.zeros(2, 3), torch.zeros(2, 3, dtype=int))
    with pytest.raises(TypeError, match=r"groups is a list of torch arrays: pass one array, torch\.stack\(groups\)"):
        group_advantages(rewards[:2], [torch.tensor(1), torch.tensor(2)])
    with pytest.raises(TypeError, match="rewards is on meta"):
        group_advantages(torch.zeros(3, device="meta"), [0, 0, 0])


def calls_with_labels(dtype):
    """Yield calls with every setting, in NumPy. Labels fit into JAX's 32 bits."""
    for kind in KINDS_OF_REWARDS:
        rewards, groups, mask = answers(kind, dtype, 200)
        groups //= 10**12
        trajectory = np.random.default_rng(3).integers(-9, 90, 200)
        whole = rewards[np.unique(groups * 1000 + trajectory, return_inverse=True)[1]]
        assert (np.bincount(trajectory + 9) > 1).any()
        yield {"rewards": np.where(mask, rewards, np.nan), "groups": groups, "mask": mask, "baseline": whole}
        for settings in SETTINGS + BATCH:
            yield {"rewards": rewards, "groups": groups, **settings}
            yield {"rewards": whole, "groups": groups, "mask": mask, "trajectories": trajectory, **settings}
    yield {"rewards": np.array([np.nan, 1, np.inf, 2, 0, 1], dtype), "groups": np.array([0, 0, 1, 1, 2, 2])}
    yield {"rewards": np.zeros(0, dtype), "groups": np.zeros(0, int), "baseline": "leave_one_out"}
    yield {"rewards": np.zeros((2, 3), dtype), "groups": np.zeros((2, 3), int), "baseline": 0.5, "scale": None}


def test_tensors_on_a_device(dtype, monkeypatch):
    """The CPU stands for the GPU, whose roots of float64 are the nearest ones; those of torch on the CPU are not."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "sqrt", lambda given: torch.from_numpy(np.sqrt(given.numpy())))
    devices = pytest.importorskip("fastgae._interop.torch_devices")
    for call in calls_with_labels(dtype):
        tensors = converted(call, torch.from_numpy)
        got = devices.call(group_advantages, tensors)
        assert_same_bits(got.numpy(), group_advantages(**call))
        order = np.random.default_rng(8).permutation(len(call["rewards"]))
        permuted = {name: each[order] if isinstance(each, torch.Tensor) else each for name, each in tensors.items()}
        assert_same_bits(devices.call(group_advantages, permuted).numpy(), got.numpy()[order])
    left = {"rewards": np.array([1.0, -1.0, 2.0**-200, 0.0]), "groups": np.zeros(4, int)}  # by all passes of a sum
    got = devices.call(group_advantages, converted(left, torch.from_numpy) | {"scale": "none"})
    assert_same_bits(got.numpy(), group_advantages(**left, scale="none"))
    rewards, groups = torch.ones(3, requires_grad=True), torch.tensor([0, 0, 1])
    assert not devices.call(group_advantages, {"rewards": rewards, "groups": groups}).requires_grad
    with pytest.raises(TypeError, match=r"groups is not a tensor, .*pass torch.as_tensor"):
        devices.call(group_advantages, {"rewards": rewards, "groups": [0, 0, 1]})
    with pytest.raises(TypeError, match="groups has dtype float32; expected integers"):
        devices.call(group_advantages, {"rewards": rewards, "groups": rewards})


@pytest.mark.parametrize("compiled", [True, False])
def test_jax(compiled, monkeypatch, dtype):
    """In a program, by the call that XLA makes on the CPU, and as JAX computes it on a GPU."""
    jax = pytest.importorskip("jax")
    if not compiled:
        monkeypatch.setattr("fastgae._interop.jax_xla.is_ready", lambda: False)
    with jax.enable_x64(dtype == np.float64):
        every = 9 if compiled else 23  # XLA compiles each for a second; of each kind of rewards in each dtype
        calls = [*calls_with_labels(dtype)][every * (dtype == np.float64) :: 2 * every]
        arrays = [{name: each for name, each in call.items() if isinstance(each, np.ndarray)} for call in calls]

        def program(arrays):
            return [group_advantages(**call | given) for call, given in zip(calls, arrays, strict=True)]

        for call, got in zip(calls, jax.jit(program)(jax.tree.map(jax.numpy.asarray, arrays)), strict=True):
            assert isinstance(got, jax.Array)
            assert_same_bits(np.asarray(got), group_advantages(**call))


def test_transformations_of_jax():
    jax = pytest.importorskip("jax")
    rewards, groups, _ = answers("scores", np.float32)
    given, labels = jax.numpy.asarray(rewards), jax.numpy.asarray(groups // 10**12)
    eager = group_advantages(given, labels, baseline="leave_one_out")
    assert_same_bits(np.asarray(eager), group_advantages(rewards, groups, baseline="leave_one_out"))
    several = jax.jit(jax.vmap(group_advantages))(given.reshape(3, 20), labels.reshape(3, 20))
    rows = [group_advantages(*each) for each in zip(rewards.reshape(3, 20), groups.reshape(3, 20), strict=True)]
    assert_same_bits(np.asarray(several), np.stack(rows))
    gradient = jax.grad(lambda given: (given * group_advantages(given, labels)).sum())(given)
    assert_same_bits(np.asarray(gradient), group_advantages(rewards, groups))
    for wrong, what in ((["a"] * 60, "which no program of JAX holds"), (given, "expected integers")):
        with pytest.raises(TypeError, match=f"groups has .*{what}"):
            jax.jit(lambda given, wrong=wrong: group_advantages(given, wrong))(given)


def test_a_baseline_of_numbers():
    rewards, groups = np.array([1, 0, 0.5, 3], np.float32), [0, 0, 1, 1]
    greedy = np.array([0.5, 0.5, 0.1, 0.1])
    got = group_advantages(rewards, groups, baseline=greedy, scale="none")
    assert_same_bits(got, (rewards.astype(np.float64) - greedy).astype(np.float32))
    scaled = group_advantages(rewards, groups, baseline=greedy, eps=0.0)
    np.testing.assert_allclose(scaled, (rewards - greedy) / np.repeat([0.5**0.5, 2.5 * 0.5**0.5], 2), rtol=1e-6)
    assert_same_bits(group_advantages(rewards, groups, baseline=0.5, scale="none"), rewards - np.float32(0.5))
    masked = group_advantages(rewards, groups, baseline=greedy, scale="none", mask=[1, 0, 1, 1])
    assert_same_bits(masked, np.where([1, 0, 1, 1], got, np.float32(0)))


def test_equal_rewards():
    """The lines of verl 0.9.1 and TRL 1.16.0 in float32, whose sum has a rounding after each addition."""
    for reward, count, verl, trl in ((0.7, 8, 0.056, 6e-4), (0.1, 7, -0.0074, -7.5e-5)):
        rewards = np.full(count, reward, np.float32)
        centered = rewards - np.cumsum(rewards)[-1] / np.float32(count)
        std = np.sqrt((centered**2).sum() / np.float32(count - 1))
        np.testing.assert_allclose(centered / (std + np.float32(1e-6)), verl, rtol=0.01)
        np.testing.assert_allclose(centered / (std + np.float32(1e-4)), trl, rtol=0.01)
        assert not group_advantages(rewards, [0] * count).any()
