"""What diagnose says of small made-up arrays, odd numbers and shapes, and how it says it."""

import json
from itertools import product

import numpy as np
import pytest

import fastgae


def call_of(rewards, values, terminated, last_values=1.0):
    return {"rewards": rewards, "values": values, "terminated": terminated, "last_values": last_values}


def small_call(shape=(32, 4)):
    rewards, values = np.random.default_rng(0).normal(size=(2, *shape))
    return call_of(rewards, values, np.zeros(shape, bool), np.ones(shape[1:]))


def detectors(call):
    return [finding.detector for finding in fastgae.diagnose(**call)]


def ends_after(lengths, steps):
    """Return flags of episodes of random lengths in eight envs; a function makes the lengths."""
    return np.stack([np.isin(np.arange(steps), lengths().cumsum() - 1) for _ in range(8)], 1)


def odd_calls(seed):
    """Yield correct calls that look like mistakes."""
    rng = np.random.default_rng(seed)
    none, walks = np.zeros((128, 8)), [[np.arange(n) for n in rng.integers(4, 8, 64)] for _ in range(8)]
    values = 1.0 * np.stack([np.concatenate(walk)[:129] for walk in walks], 1)
    call = call_of(none - 1, values[:-1], none, values[-1]) | {"gamma": 1.0}
    yield "an agent walks to and fro between two states, and crosses the same jump every few steps", call

    for share in (0.15, 0.65):
        values = np.where((rng.random((129, 8)) < share).cumsum(0) % 2, -9.9, -10.1)
        values[-1] = values[-2] if share > 0.5 else values[-1]
        call = call_of(none - 0.1, values[:-1], none, values[-1])
        yield "many steps leave the state as it is, as in Taxi: often, half of the envs move at once", call

    for shortest in (4, 15):
        left = np.concatenate([np.arange(length)[::-1] for length in rng.integers(shortest, 2 * shortest, 3000)])
        left = left[: 2048 * 4].reshape(4, 2048).T
        call = call_of(1.0 * (left == 0), 0.99**left, left == 0, 0.99 ** (left[-1] - 1.0))
        yield "of episodes that pay at their end, no row before an end pays, because two ends are no neighbours", call

    ends, noise = ends_after(lambda: rng.integers(3, 40, 99), 256), rng.normal(0, 0.1, (2, 256, 8))
    first, second = (np.concatenate([np.ones((by, 8), bool), ends[:-by]]) for by in (1, 2))
    for paid in (0.0, 50.0):
        rewards = np.where(first, paid, 1 + noise[0])
        values = fastgae.discounted_returns(rewards, ends, last_values=20.0) + noise[1]
        yield (
            "a reward marks first steps: values jump at flags, and fit after them",
            call_of(rewards, values, ends, 20.0),
        )
    rewards = np.where(first | second, 0.0, 1 + noise[0])
    yield "no reward in the first two steps: neither is a reset row", call_of(rewards, noise[1], ends)
    rewards = np.where(ends | np.roll(ends, -1, 0), -5.0, noise[0])
    yield "the last two steps have one reward, and the flag is in the row of the last", call_of(rewards, noise[1], ends)

    rewards = first * rng.choice([0.5, 1.5], ends.shape)
    yield "only first steps pay, and all episodes begin in one state", call_of(rewards, 1.0 * first, ends, 0.0)

    rewards, values = np.where(first, [[[-0.3]], [[0.2]]], rng.normal([0 * ends, 2 * ends]))
    yield "all episodes begin in one state, and so with one reward", call_of(rewards, values, ends)
    yield "the same, for a critic that says 0 everywhere", call_of(rewards, 0 * values, ends)
    values[1:][ends[1:]] = values[:-1][ends[1:]]
    limits = {"truncated": ends, "final_values": values}
    yield "an agent stands still when the limit comes", call_of(noise[0], values, 0 * ends) | limits

    rewards, values = rng.normal(size=(2, 128, 8))
    call = call_of(rewards.T, values.T, None, 0.0) | {"gamma": 1.0}
    yield "sequences that have ended bootstrap from 0, and no gamma is larger than 1", call
    ends = np.tile([[False], [True]], (64, 8))
    yield "episodes of two steps look like a reset row and one step", call_of(ends * rewards, values, ends, values[0])

    lengths, rows = np.repeat(np.arange(48, 64), 4), np.arange(64)[:, np.newaxis]
    answers, exists = np.where(rows < lengths, rng.normal(size=(2, 64, 64)), 0.0), {"mask": rows < lengths}
    yield "few of many padded answers have the greatest length", call_of(*answers, rows == lengths - 1, 0.0) | exists
    yield "answers are filled up with 0, and V is 0 in the last row and after it", call_of(*answers, None, 0.0)
    lengths = np.arange(2, 18)
    call = call_of(*rng.normal(size=(2, 256, 16)), np.arange(256)[:, np.newaxis] >= lengths - 1, 0.0)
    yield "flags stay set in the padding", call | {"mask": np.arange(256)[:, np.newaxis] < lengths}
    ends = ends_after(lambda: rng.integers(5, 12, 4), 256)
    mask = ends[::-1].cumsum(0)[::-1] > 0
    call = call_of(np.where(ends, -1.0, 1.0 * mask), rng.normal(size=(256, 8)), ends, 0.0) | {"mask": mask}
    yield "a usual reward is rare only in the padding", call
    ends = ends_after(lambda: rng.integers(10, 31, 60), 512)
    yield "as many episodes have the greatest length as any other", call_of(*rng.normal(size=(2, 512, 8)), ends)

    values = 20 * np.sin(np.arange(200)[:, np.newaxis] / 3) + rng.normal(0, 0.1, (200, 16))
    call = call_of(np.ones((200, 16)), values, np.zeros((200, 16)))
    yield "all envs start in one state: V changes from step to step, and hardly from env to env", call
    rewards, done = np.tile([1.0, 0.0], 20), np.isin(np.arange(40), [4, 20])
    yield "where rewards are often 0, they tell no reset rows", call_of(rewards, np.linspace(0, 1, 40), done)
    lengths, rows = np.arange(4, 12), np.arange(32)[:, np.newaxis]
    call = call_of(*np.where(rows < lengths, rng.normal(size=(2, 32, 8)), 0.0), (rows + 1) % (2 * lengths) == lengths)
    yield "rows after the first flag are no padding if there are more flags", call
    rewards, ends = rng.normal(size=(64, 4)), rng.random((64, 4)) < 0.1
    call = {**call_of(rewards, rewards, ends & False), "last_values": np.zeros(4), "gamma": 0.0}
    call |= {"truncated": ends, "final_values": np.zeros(ends.sum())}
    yield "with a gamma of 0, nothing is missing where V' is 0", call

    moves, ends = rng.random((128, 8)) < 0.55, np.isin(np.arange(1024).reshape(128, 8), rng.choice(1024, 10))
    since = np.maximum.accumulate(np.where(moves | np.roll(ends, 1, 0), np.arange(128)[:, np.newaxis], 0))
    rewards, values, final = rng.normal(size=(3, 128, 8))
    values = np.take_along_axis(values, since, 0)
    limits = {"truncated": ends, "final_values": np.where(rng.random((128, 8)) < 0.45, values, final)}
    yield "an agent often stands still, and few limits come after a move", call_of(rewards, values, 0 * ends) | limits


def test_correct_calls_that_look_like_mistakes():
    for seed in range(60):
        for what, call in odd_calls(seed):
            assert detectors(call) == [], f"{what}: {seed}"


def test_both_flags_at_the_same_few_steps_may_be_chance():
    terminated = np.random.default_rng(0).random((8, 4)) < 0.4
    truncated = np.zeros_like(terminated)
    truncated[tuple(np.argwhere(terminated)[:2].T)] = True
    call = small_call((8, 4)) | {"truncated": truncated, "final_values": np.ones((8, 4))}
    assert detectors(call | {"terminated": terminated}) == []
    assert detectors(call | {"terminated": truncated}) == ["truncation_as_termination"]


def test_where_only_ends_pay_the_rewards_mark_them():
    rng = np.random.default_rng(0)
    ends = ends_after(lambda: rng.integers(3, 40, 99), 256)
    rewards, values = np.where(ends, rng.choice([-1.0, 1.0], ends.shape), 0.0), rng.normal(size=ends.shape)
    to_go = fastgae.discounted_returns(rewards, ends, last_values=0.3)
    for by, word, row in ((1, "late", "before"), (-1, "early", "after")):
        moved = np.roll(ends, by, 0)
        found = fastgae.diagnose(**call_of(rewards, values, moved))
        assert [finding.detector for finding in found] == ["flags_shifted"]
        assert f"flags look one step {word}: all " in str(found)
        assert f"rewards but 0 are in the row {row}, and 0 of them in the flag's row" in " ".join(str(found).split())
        assert detectors(call_of(np.roll(rewards, -by, 0), to_go, ends)) == ["rewards_shifted"]
        few = rewards * (np.cumsum(ends.any(1)) < 4)[:, np.newaxis]  # chance may do this
        assert detectors(call_of(few, values, moved)) == []
    assert detectors(call_of(rewards, values, ends)) == []


def test_values_that_drift_from_env_to_env_are_swapped():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.1, (200, 16)).cumsum(0) + 20 * rng.normal(size=16)
    call = call_of(np.ones((200, 16)), values, np.zeros((200, 16)))
    assert detectors(call | {"time_axis": 1}) == ["axes_swapped"]


@pytest.mark.parametrize("mean", [2.0, -2.0])
def test_whitened_rewards_have_another_mean_than_values_expect(mean):
    rewards = np.random.default_rng(0).normal(mean, 0.8, (64, 8)).repeat(4, 0)
    values = fastgae.discounted_returns(rewards, None, last_values=100 * mean)
    call = call_of((rewards - rewards.mean()) / rewards.std(), values, np.zeros((256, 8)), 100 * mean)
    assert detectors(call) == ["rewards_whitened"]


def test_few_steps_say_nothing_of_row_0():
    """Rewards of 0 in row 0 alone are no finding before there are 32 other steps to compare them with."""
    for steps, expected in ((4, []), (5, ["prev_done"])):
        call = small_call((steps, 8)) | {"autoreset": "next_step"}
        call["rewards"][0] = 0
        assert detectors(call) == expected


def test_what_is_not_finite_is_counted_with_what_it_reaches():
    for name, bad in product(("rewards", "values"), (np.nan, np.inf, -np.inf)):
        call = small_call()
        call[name][5, 2] = bad
        (finding,) = fastgae.diagnose(**call)
        assert (finding.detector, finding.where.total, finding.where.first) == ("non_finite", 1, ((5, 2),))
        assert name in finding.what
        assert "6 of 128" in finding.why


def test_what_follows_the_last_row_and_is_not_finite():
    """Time may be the last axis."""
    call = {name: np.transpose(array) for name, array in small_call().items()}
    for name in ("last_values", "last_advantages"):
        (finding,) = fastgae.diagnose(**call | {name: [1, 1, np.inf, 1]}, time_axis=1)
        assert (finding.detector, finding.where.first) == ("non_finite", ((31, 2),))
        assert name in finding.what


def test_a_gate_hides_what_is_not_finite():
    call = small_call()
    call["terminated"][-1, 1] = True
    call["last_values"][1] = np.nan
    (finding,) = fastgae.diagnose(**call)
    assert "leaves them out" in finding.what
    assert finding.where.first == ((31, 1),)
    call["rewards"][0, 0] = np.inf
    assert [("leaves them out" in finding.what) for finding in fastgae.diagnose(**call)] == [False, True]


def test_returns_repeat_what_is_not_finite_in_the_padding():
    call = small_call()
    call["mask"] = np.arange(32)[:, np.newaxis] < [32, 20, 32, 30]
    assert "non_finite" not in detectors(call)
    padding = ~call["mask"]
    for name, why in (("rewards", "they have no effect"), ("values", "14 returns repeat them outside of the mask")):
        spoiled = {**call, name: np.where(padding, np.nan, call[name])}
        (finding,) = (each for each in fastgae.diagnose(**spoiled) if each.detector == "non_finite")
        assert why in finding.why
        assert finding.where.total == 14
        assert ("[mask]" in finding.change) == (name == "values")


def test_unread_final_values_may_be_anything():
    call = small_call()
    call["truncated"] = np.zeros((32, 4), bool)
    call["truncated"][3, 1] = True
    final = np.where(call["truncated"], 0.5, np.nan)
    assert detectors({**call, "final_values": final}) == []
    (finding,) = fastgae.diagnose(**call, final_values=np.array([np.nan]))
    assert finding.where.first == ((3, 1),)


def bfloat16(number):
    bits = np.float32(number).view(np.uint32)
    return float(np.uint32(bits + np.uint32(0x8000) & np.uint32(0xFFFF0000)).view(np.float32))


def test_coefficients_rounded_to_16_bits():
    """Simple fractions are no such numbers."""
    for name, usual in product(("gamma", "gae_lambda", "returns_lambda"), (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.997)):
        for kind, rounded in (("float16", float(np.float16(usual))), ("bfloat16", bfloat16(usual))):
            (finding,) = fastgae.diagnose(**small_call(), **{name: rounded})
            assert finding.detector == "coefficient_rounded"
            assert f"rounded to {kind}" in finding.what
            assert f"{usual:g} " in finding.what
        assert detectors({**small_call(), name: usual}) == detectors({**small_call(), name: np.float32(usual)}) == []
    for gamma in (0.0, 0.5, 0.75, 0.875, 0.9375, 1.0, 1 - 2**-6):
        assert detectors({**small_call(), "gamma": gamma}) == []


def test_the_normaliser():
    ones = np.ones((32, 4))
    constant = {"rewards": ones, "values": ones, "terminated": ones * 0, "next_values": ones}
    assert detectors({**constant, "gae_lambda": 0.0}) == []
    assert detectors({**constant, "gae_lambda": 0.0, "normalize": "global"}) == ["normalizer"]
    one_step = {**small_call((1, 4)), "normalize": "per_env"}
    (finding,) = fastgae.diagnose(**one_step)
    assert "4 of 4 environments" in finding.what
    assert detectors({**one_step, "normalize": "global"}) == []
    (finding,) = fastgae.diagnose(**small_call(), normalize="per_env", mask=np.ones((32, 1)) * [0, 1, 1, 1])
    assert "1 of 4 environments" in finding.what
    call = small_call()
    call["rewards"][0, 0] = np.nan
    assert detectors({**call, "normalize": "per_env"}) == ["non_finite", "normalizer"]


def test_the_report():
    call = small_call()
    call["last_values"][:] = 0.0
    found = fastgae.diagnose(**call, gamma=float(np.float16(0.99)))
    assert found
    assert len(found) == 2
    assert isinstance(found[0], fastgae.Finding)
    text = str(found)
    assert text.startswith("2 findings in 32 steps of 4 environments\n\ncoefficient_rounded: ")
    assert "\n\n  episodes   0 ended\n  rewards    mean " in text
    assert "t=31 n=0, t=31 n=1" in text
    assert max(map(len, text.splitlines())) <= 100
    facts = json.loads(found.to_json())
    assert facts == json.loads(json.dumps(found.as_dict()))
    rounded, last_row = facts["findings"]
    assert set(rounded) == {"detector", "what", "where", "why", "change"}
    assert last_row["where"] == {"count": 4, "first": [[31, 0], [31, 1], [31, 2], [31, 3]]}
    assert repr(found) == "<Diagnosis: coefficient_rounded, last_row_bootstrap>"


def test_a_report_fits_one_screen():
    """Three findings are printed in full. A notebook shows all."""
    call = small_call()
    call["last_values"][:], call["values"][3, 0], call["rewards"][4, 1] = 0.0, np.nan, np.inf
    rounded = {name: float(np.float16(0.99)) for name in ("gamma", "gae_lambda")}
    found = fastgae.diagnose(**call, **rounded, normalize="global")
    assert len(found) == 6
    lines = str(found).splitlines()
    assert lines[0].startswith("6 findings in ")
    assert "and also non_finite, last_row_bootstrap, normalizer" in lines
    assert len(lines) <= 40
    assert all(finding._repr_html_() in found._repr_html_() for finding in found)


def test_the_overview():
    rewards = np.ones((5, 2))
    terminated, truncated, mask = np.zeros((3, 5, 2), bool)
    terminated[1, 0] = truncated[1, 0] = truncated[3, 0] = truncated[4, 1] = True  # terminated wins
    mask[:] = True
    mask[0, 1] = False
    call = {"rewards": rewards, "values": 0 * rewards, "terminated": terminated, "truncated": truncated}
    found = fastgae.diagnose(**call, next_values=0 * rewards, mask=mask, gamma=0.5, gae_lambda=1.0)
    shown = found.overview
    assert (shown.steps, shown.envs, shown.episodes, shown.truncated, shown.lengths) == (5, 2, 3, 2, (2, 2, 4))
    # Of the values, all 0, nothing is explained, and every TD error is the reward.
    assert (shown.explained_variance, shown.mean_td_error, shown.std_td_error) == (0.0, 1.0, 0.0)
    assert "3 ended, 67% of them truncated; of 2 to 4 steps, median 2" in str(found)
    nothing = fastgae.diagnose(**call | {"rewards": 0 * rewards}, next_values=0 * rewards)
    assert nothing.overview.explained_variance is None


def test_rounding_of_returns_is_no_variance():
    """All answers are wrong: with a lambda of 1, the returns are 0 but for the rounding of A + V."""
    for dtype in (np.float32, np.float64):
        values = np.random.default_rng(0).normal(size=(64, 16)).astype(dtype)
        found = fastgae.diagnose(**call_of(0 * values, values, None, 0.0), gamma=1.0, gae_lambda=1.0)
        assert found.overview.explained_variance is None
        assert "explained variance of the returns: undefined" in str(found)


def test_any_rank_and_axis():
    for shape, axis in (((32,), 0), ((2, 32, 3), 1), ((3, 2, 32), -1)):
        rewards, values = np.random.default_rng(0).normal(size=(2, *shape))
        index = tuple(map(int, np.unravel_index(7, shape)))
        values[index] = np.nan
        last = np.ones(shape).take(0, axis)
        (finding,) = fastgae.diagnose(rewards, values, np.zeros(shape), last_values=last, time_axis=axis)
        assert finding.where.first == ((index[axis], *np.delete(index, axis)),)


def test_small_and_empty_rollouts_and_masks():
    for shape in ((0, 4), (4, 0), (1, 1), (1, 4), (2, 1), (1, 64), (2, 64)):
        found = fastgae.diagnose(**small_call(shape))
        assert not found
        json.loads(found.to_json(), parse_constant=pytest.fail)  # no NaN, which is no JSON
        size = f"{shape[0]} step{'s' * (shape[0] != 1)}{f' of {shape[1]} environments' * (shape[1] != 1)}"
        assert f"Nothing found in {size}. " in str(found)
    call = {**small_call(), "terminated": np.ones((32, 4), bool)}
    assert not fastgae.diagnose(**call, mask=np.zeros((32, 4), bool))


def test_flags_that_agents_share():
    """A mask of (T, 1) gives the findings of the same mask in full."""
    call = small_call()
    call["rewards"][5, 2] = np.nan
    mask = np.arange(32)[:, np.newaxis] != 9
    found = fastgae.diagnose(**call, mask=mask)
    assert found
    assert tuple(found) == tuple(fastgae.diagnose(**call, mask=np.repeat(mask, 4, 1)))


def test_ticks_of_a_picture_are_steps():
    pytest.importorskip("matplotlib")
    call = small_call((1_000_000,)) | {"last_values": 0.0}
    figure = fastgae.diagnose(**call).plot()
    figure.draw_without_rendering()
    assert "999980" in [each.get_text() for each in figure.axes[3].get_xticklabels()]
    assert figure.axes[3].xaxis.get_offset_text().get_text() == ""


def test_a_notebook_shows_a_result_in_a_few_numbers():
    rewards = np.arange(6.0).reshape(3, 2)
    result = fastgae.gae(rewards, rewards, None, last_values=0.0)
    shown = result._repr_html_()
    assert all(f"<td>{each:.4g}</td>" in shown for each in (result.returns.mean(), result.advantages.max()))
    assert "<td>(0, 2)</td>" in fastgae.gae(rewards[:0], rewards[:0], None, last_values=0.0)._repr_html_()
    assert "None" in fastgae.gae(rewards, rewards, None, last_values=0.0, out=(np.empty((3, 2)), None))._repr_html_()


def test_envs_of_two_axes_are_named_by_both():
    pytest.importorskip("matplotlib")
    rewards = np.random.default_rng(0).normal(size=(2, 3, 4))
    rewards[1, 2] = 0
    call = call_of(rewards, 0 * rewards, 0 * rewards, np.where(rewards.any(-1), 1.0, 0.0))
    (finding,) = found = fastgae.diagnose(**call, normalize="per_env", time_axis=-1)
    assert (finding.detector, finding.where.first) == ("normalizer", ((0, 1, 2),))
    figure = found.plot()
    assert figure.get_suptitle() == "normalizer, env 1, 2"
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), rewards[1, 2])


def test_the_explained_variance_is_that_of_the_returns():
    for returns_lambda in (None, 0.5):
        call = small_call((64, 4)) | {"gamma": 0.9, "gae_lambda": 0.8, "returns_lambda": returns_lambda}
        returns = fastgae.gae(**call).returns
        explained = 1 - np.var(returns - call["values"]) / np.var(returns)
        np.testing.assert_allclose(fastgae.diagnose(**call).overview.explained_variance, explained, rtol=1e-4)
