"""Sequences of tokens: what diagnose says of them, and the recipes of docs/tokens.md beside the loops of libraries."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import fastgae
from support.pages import snippets


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
            flags = "" if given is explicit else "no flags given: each env counts as one sequence; "
            assert f"\n  sequences  32; {flags}" in str(found)
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


def test_diagnose_sees_scores_outside_of_the_mask():
    for seed in range(20):
        call = answers("right padding", seed)
        exists, scores = call["mask"], call["rewards"].sum(axis=0)
        late = np.zeros_like(call["rewards"])
        late[-1] = scores  # in the last place, which is in the mask where an answer fills the whole width
        (finding,) = fastgae.diagnose(**{**call, "rewards": late})
        missed = np.flatnonzero(exists.any(axis=0) & ~exists[-1])
        assert (finding.detector, finding.where.total) == ("rewards_masked", len(missed))
        for count in (1, 2):
            few = np.where(np.isin(np.arange(late.shape[1]), missed[:count]), late, 0.0)
            assert len(fastgae.diagnose(**{**call, "rewards": few})) == count - 1
        assert not fastgae.diagnose(**{**call, "rewards": late + 0.1})  # a penalty at every token
        assert not fastgae.diagnose(**{**call, "mask": exists & (scores < 0)})  # whole answers are left out
        burnt_in = np.arange(len(exists))[:, np.newaxis] >= len(exists) - 1
        ends = {"terminated": exists & ~np.roll(exists, -1, axis=0)}  # the rewards of others reach no agent that died
        for other in ({"rewards": late[::-1], "mask": burnt_in & (scores != 0)}, {"rewards": late, **ends}):
            found = fastgae.diagnose(**{**call, **other})
            assert "rewards_masked" not in {finding.detector for finding in found}, found


def odd_answers(seed):
    """Yield correct calls that look like mistakes in the rollout of an environment."""
    rng = np.random.default_rng(seed)
    t, noise = np.arange(128)[:, np.newaxis], rng.normal(0.0, 0.01, (128, 64))
    lengths = np.sort(rng.integers(40, 129, 64))
    whole, exists = np.ones((128, 64), bool), t < rng.permutation(lengths)
    once = np.where(t < rng.integers(20, 100, 64), 0.3, 1.0) + noise
    yield "each answer gets to a solution once", scored(whole, once, np.ones(64)) | {"mask": None}
    again = 1.0 - t % rng.integers(8, 20, 64) / 30 + noise
    yield "each answer gets to a solution again and again", scored(exists, again, np.ones(64))
    tool = (t < lengths) & (t % 3 > 0)
    yield "a tool at the same tokens of all answers, sorted by length", scored(tool, noise, np.ones(64))
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


PAGE = Path(__file__).parents[1] / "docs" / "tokens.md"


def two_spans(seed, answers=9):
    """Return rewards, values and the mask of answers: spans of tokens, and one answer that fills the whole width."""
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, answers, 40)).astype(np.float32)
    mask = np.repeat(rng.random((answers, 10)) < 0.6, 4, axis=1)
    mask[0] = True
    return rewards, values, mask


def recipe(word, **names):
    """Return the names after a snippet of the page."""
    code = next(code for _, code in snippets(PAGE) if word in code)
    exec(code, names := {"np": np, "fastgae": fastgae, **names})
    return names


def turns_of(mask):
    starts = mask & ~np.pad(mask[:, :-1], ((0, 0), (1, 0)))
    return np.where(mask, starts.cumsum(axis=1) - 1, -1)


def test_agile_rl_turns():
    """``_compute_gae_returns`` of AgileRL 2.58 and its ``pool_by_turns``, written out for each answer."""
    rewards, values, mask = two_spans(2)
    rewards[~mask] = values[~mask] = np.nan
    turn_ids = turns_of(mask)
    got = recipe("turn_values", rewards=rewards, values=values, turn_ids=turn_ids)
    for n, ids in enumerate(turn_ids):
        carried, next_value = 0.0, 0.0
        for turn in reversed(range(ids.max() + 1)):
            value = values[n, ids == turn].mean()
            carried = rewards[n, ids == turn].sum() + 0.9 * next_value - value + 0.9 * 0.95 * carried
            next_value = value
            np.testing.assert_allclose(got["token_advantages"][n, ids == turn], carried, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(got["token_returns"][n, ids == turn], carried + value, rtol=1e-5, atol=1e-5)
    assert not got["token_returns"][turn_ids < 0].any()


def test_returns_of_each_turn_of_verifiers():
    """``_compute_stepwise_returns`` of verifiers #536 and its baseline, written out for each answer and prompt."""
    rewards, _, mask = two_spans(5, 4)
    turn_ids = turns_of(mask)
    turn = turn_ids[:, :, np.newaxis] == np.arange(turn_ids.max() + 1)
    turn_rewards = (rewards[:, :, np.newaxis] * turn).sum(axis=1)
    got = recipe("by_largest", turn=turn, turn_rewards=turn_rewards)
    for word, of_two in (("by_sum", lambda now, later: now + later), ("by_largest", max)):
        for prompt in "ab":
            rows = np.flatnonzero(got["answer_prompts"] == prompt)
            returns, places = [], []
            for n in rows:
                later = None
                for k in np.flatnonzero(got["exists"][n])[::-1]:
                    later = turn_rewards[n, k] if later is None else of_two(turn_rewards[n, k], 0.9 * later)
                    returns.append(later)
                    places.append((n, k))
            expected = (returns - np.mean(returns)) / (np.std(returns) + 1e-8)
            np.testing.assert_allclose(got[word][tuple(np.transpose(places))], expected, rtol=1e-4, atol=1e-5)


def test_two_levels_of_ragen_and_vagen():
    """RAGEN's ``compute_bi_level_gae_advantage_return``, and VAGEN's high level and new bi-level form, written out."""
    rewards, values, mask = two_spans(3)
    ids = np.where(mask, np.arange(40) // 4, -1)
    rewards[:, np.arange(40) % 4 != 3] = 0  # the reward of a turn is on its last token
    names = {"rewards": rewards, "values": values, "mask": mask, "turn_ids": ids}
    got = recipe("first_values", **recipe("ends_turn = ", **recipe("turn_values", **names)))
    for n, exists in enumerate(mask):
        ends = np.flatnonzero(got["ends_turn"][n])
        assert np.array_equal(ends, np.flatnonzero(exists & (np.arange(40) % 4 == 3)))
        assert np.array_equal(ends, np.flatnonzero(exists & (rewards[n] != 0)))  # which RAGEN takes for the ends
        # RAGEN takes V of the last token of a turn, and VAGEN's other forms V of the first.
        for of_turn, result in ((values[n, ends], got["tokens"]), (values[n, ends - 3], got["new_bi_level"])):
            carried, next_value, targets = 0.0, 0.0, rewards[n].astype(np.float64)
            for end, value in zip(ends[::-1], of_turn[::-1], strict=True):
                carried = rewards[n, end] + 0.9 * next_value - value + 0.9 * 0.95 * carried
                next_value, targets[end] = value, carried + value
                if result is got["new_bi_level"]:
                    np.testing.assert_allclose(got["high_level"].advantages[n, end // 4], carried, rtol=1e-5, atol=1e-5)
            for t in np.flatnonzero(exists)[::-1]:
                if t in ends:
                    carried, next_value = 0.0, 0.0
                carried = targets[t] + next_value - values[n, t] + 0.95 * carried
                next_value = values[n, t]
                np.testing.assert_allclose(result.advantages[n, t], carried, rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(result.returns[n, t], carried + values[n, t], rtol=1e-5, atol=1e-5)
