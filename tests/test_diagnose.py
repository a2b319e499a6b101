"""Planted mistakes on real rollouts: each is found by its detector, and the correct rollout gives no finding."""

import contextlib
import functools
import itertools
import json
from itertools import product

import numpy as np
import pytest

import fastgae

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.wrappers.vector import NormalizeReward, TransformReward

from fastgae.compat.gymnasium import collect
from support import mistakes, planted
from support.real_rollouts import MODES, fitted_value, random_value, record

GIVES_FINAL = ("same_step", "disabled")
FORMS = ("arguments", "arguments_with_next_values")
# CartPole and Acrobot terminate, Pendulum and MountainCar are truncated after 200 steps, Acrobot after 500.
CORRECT = [
    ("CartPole-v1", 1, 64),
    ("CartPole-v1", 8, 256),
    ("Pendulum-v1", 1, 1024),
    ("Pendulum-v1", 8, 512),
    ("Acrobot-v1", 8, 640),
    ("MountainCar-v0", 8, 512),
]


def detectors(call):
    return [finding.detector for finding in fastgae.diagnose(**call)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "num_envs", "num_steps"), CORRECT)
def test_nothing_is_found_in_a_correct_rollout(env_id, num_envs, num_steps, mode):
    seeds = (0, 1) if env_id == "CartPole-v1" else (0,)  # its steps are the fastest
    for seed, value, form in product(seeds, (fitted_value, random_value), FORMS):
        call = getattr(record(env_id, mode, num_envs, num_steps, seed), form)(value(env_id))
        before = {name: a.copy() for name, a in call.items() if isinstance(a, np.ndarray)}
        found = fastgae.diagnose(**call)
        assert not found, str(found)
        assert "Nothing found" in str(found)
        for name, a in before.items():
            np.testing.assert_array_equal(call[name], a)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_found_in_rewards_of_one_scale_that_drifts(mode):
    """As VecNormalize gives all envs of a step: limits that fall together share a reward that comes nowhere else."""
    call = record("MountainCar-v0", mode, 8, 256, 0).arguments(random_value("MountainCar-v0"))
    call["rewards"] = call["rewards"] / (1 + 0.01 * np.arange(256, dtype=np.float32)[:, np.newaxis])
    assert not detectors(call)


ENDS = (("CartPole-v1", 8, 256), ("Pendulum-v1", 8, 512), ("Acrobot-v1", 8, 640))
LIMITS = (("Pendulum-v1", 8, 512), ("Pendulum-v1", 4, 256), ("Acrobot-v1", 8, 640))
ANY = (("CartPole-v1", 1, 256), *ENDS)
PLANTED = [
    (mistakes.late, "flags_shifted", MODES, ENDS[:2]),
    (mistakes.early, "flags_shifted", MODES, ENDS[:2]),
    (mistakes.merged, "truncation_as_termination", MODES, LIMITS[:2]),
    (mistakes.both, "truncation_as_termination", MODES, LIMITS),
    (mistakes.unflagged, "flags_missing", GIVES_FINAL, ENDS[:2]),
    (mistakes.inverted, "flags_inverted", MODES, ENDS),
    (mistakes.no_bootstrap, "last_row_bootstrap", MODES, ANY),
    (mistakes.own_bootstrap, "last_row_bootstrap", MODES, ENDS),
    (mistakes.of_next_episode, "truncation_bootstrap", GIVES_FINAL, LIMITS),
    (mistakes.of_same_state, "truncation_bootstrap", GIVES_FINAL, LIMITS),
    (mistakes.zero_final, "truncation_bootstrap", GIVES_FINAL, LIMITS),
    (mistakes.no_autoreset, "reset_rows", MODES[:1], ENDS),
    (mistakes.wrong_autoreset, "not_next_step", GIVES_FINAL, ENDS),
]
FITTED = (("CartPole-v1", 8, 512), ("Pendulum-v1", 8, 512))
OF_FIT = [
    (mistakes.other_gamma, "gamma_or_scale", MODES, FITTED),
    (mistakes.rescaled, "gamma_or_scale", MODES, FITTED),
    (mistakes.values_of_other_envs, "envs_shuffled", MODES, FITTED),
    (mistakes.rewards_late, "rewards_shifted", MODES[:1], [("Pendulum-v1", 8, 512)]),
    (mistakes.rewards_early, "rewards_shifted", MODES[:1], [("Pendulum-v1", 8, 512)]),
]


@pytest.mark.parametrize(
    ("plant", "detector", "modes", "rollouts"), [*PLANTED, *OF_FIT], ids=lambda each: getattr(each, "__name__", "")
)
def test_a_planted_mistake_is_found(plant, detector, modes, rollouts):
    for mode, (env_id, num_envs, num_steps), form in product(modes, rollouts, FORMS):
        recorded, value = record(env_id, mode, num_envs, num_steps, 0), fitted_value(env_id)
        call = getattr(recorded, form)(value)
        plant(call, recorded, value)
        found = fastgae.diagnose(**call)
        assert [finding.detector for finding in found] == [detector], f"{mode}, {env_id}, {num_envs} envs, {form}"
        if detector == "flags_shifted":
            assert f"one step {plant.__name__}" in found[0].what
            flagged = call["terminated"] | call["truncated"]
            assert 0 < found[0].where.total <= flagged.sum()
            assert all(flagged[index] for index in found[0].where.first)
        if (plant, detector, modes, rollouts) in OF_FIT:
            # Values that were never trained fit any gamma and scale. Flags and reset rows give other mistakes away.
            untrained = getattr(recorded, form)(random_value(env_id))
            plant(untrained, recorded, random_value(env_id))
            assert detectors(untrained) in ([],) if detector == "gamma_or_scale" else ([], [detector])


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "TaxiParts-v1"])
def test_values_that_are_too_small_may_have_only_begun_to_learn(env_id, share):
    value = fitted_value(env_id)
    for of_states in (0.0, 1.0):  # the mean is often learned first

        def learning(observations, of_states=of_states):
            values = value(observations)
            return share * (values.mean() + of_states * (values - values.mean()))

        assert detectors(record(env_id, "same_step", 8, 512, 0).arguments(learning)) == []


@pytest.mark.parametrize("env_id", planted.ENVS)
def test_values_of_an_untrained_critic_may_have_any_size(env_id):
    for scale in (1.0, 0.01, 0.001):
        call = record(env_id, "same_step", 8, 256, 0).arguments(random_value(env_id))
        assert detectors({**call, "rewards": call["rewards"] * np.float32(scale)}) == []


def test_what_happens_by_chance_is_no_finding():
    """Many steps leave the state as it is, as in Taxi, and no episode ends: often, half of the envs move at once."""
    for seed, share in itertools.product(range(60), (0.15, 0.65)):
        rng = np.random.default_rng(seed)
        values = np.where((rng.random((129, 8)) < share).cumsum(0) % 2, -9.9, -10.1)
        if share > 0.5:
            values[-1] = values[-2]
        call = {"rewards": np.full((128, 8), -0.1), "values": values[:-1], "last_values": values[-1]}
        assert detectors({**call, "terminated": np.zeros((128, 8))}) == [], f"{seed}, {share}"


# Where the state rarely changes, rewards are all the same, or values do not foresee them, these leave no trace.
UNSEEN = {
    ("whitened", "CartPoleCut-v1"),
    ("other_gamma", "TaxiParts-v1"),
    ("rescaled", "CartPoleCut-v1"),
    ("own_bootstrap", "TaxiParts-v1"),
    ("unflagged", "TaxiParts-v1"),
    ("values_of_other_envs", "TaxiParts-v1"),
}


@pytest.mark.parametrize("mistake", planted.MISTAKES)
def test_mistakes_of_the_table(mistake):
    """``python -m support.planted`` plants them in rollouts of trained policies, too, and in those of other envs."""
    names, _, _, envs = planted.MISTAKES[mistake]
    for env in {"CartPoleCut-v1", "TaxiParts-v1"} & {*envs}:
        found = {finding.detector for finding in planted.planted(mistake, env)}
        assert (found and found <= {*names.split()}) or ((mistake, env) in UNSEEN and not found), f"{env}: {found}"


class CutOff(gymnasium.Wrapper):
    """Truncate at random steps, so that no length is common to the episodes."""

    def __init__(self, env):
        super().__init__(env)
        self.generator = np.random.default_rng(0)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated or self.generator.random() < 0.03, info


class PaysAtTheEnd(gymnasium.Wrapper):
    """Pay -100 for the step that ends an episode, as LunarLander does for a crash."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, -100.0 if terminated else reward, terminated, truncated, info


@functools.cache
def rollouts_of(env_id, num_steps, count=1, mode="next_step", wrap=lambda envs: envs, wrappers=()):
    """Return successive rollouts of one training, with random actions. Tests share them."""
    options = {"autoreset_mode": gymnasium.vector.AutoresetMode[mode.upper()]}
    envs = wrap(gymnasium.make_vec(env_id, 8, "sync", vector_kwargs=options, wrappers=wrappers))
    envs.action_space.seed(0)
    with contextlib.closing(envs):
        rollouts = collect(envs, lambda _: envs.action_space.sample(), num_steps, seed=0)
        return [*itertools.islice(rollouts, count)]


def calls_of(env_id, value, *given, **how):
    """Return the calls of these rollouts."""
    return [rollout.arguments(value) for rollout in rollouts_of(env_id, *given, **how)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_merged_dones_with_next_step(env_id):
    """Where the row after a done shows V of the final observation, a good V tells limits from ends."""
    for value, expected in ((fitted_value(env_id), ["terminated_by_limit"]), (random_value(env_id), [])):
        (call,) = calls_of(env_id, value, 512, wrappers=(CutOff,))
        assert detectors(call) == []
        mistakes.merged(call, None, value)
        assert detectors(call) == expected


@pytest.mark.parametrize(("env_id", "num_steps"), [("Pendulum-v1", 512), ("MountainCar-v0", 640)])
def test_merged_dones_in_every_rollout_of_a_training(env_id, num_steps):
    """Rollouts after the first begin inside an episode, which looks shorter than the others."""
    for call in calls_of(env_id, random_value(env_id), num_steps, 5):
        assert detectors(call) == []
        mistakes.merged(call, None, None)
        assert detectors(call) == ["truncation_as_termination"]


@pytest.mark.parametrize("shortest", [4, 15])
def test_a_usual_reward_marks_no_end(shortest):
    """Of episodes that pay at their end, every row before an end pays nothing, because two ends are no neighbours."""
    rng = np.random.default_rng(shortest)
    left = np.concatenate([np.arange(length)[::-1] for length in rng.integers(shortest, 2 * shortest, 3000)])
    left = left[: 2048 * 4].reshape(4, 2048).T
    ends = left == 0
    call = {"rewards": 1.0 * ends, "values": 0.99**left, "terminated": ends, "last_values": 0.99 ** (left[-1] - 1.0)}
    assert detectors(call) == []


@pytest.mark.parametrize(("env_id", "num_steps"), [("Pendulum-v1", 512), ("MountainCar-v0", 640)])
def test_rewards_that_hold_the_bootstraps(env_id, num_steps):
    """As in a buffer of Stable-Baselines3."""
    (call,) = calls_of(env_id, fitted_value(env_id), num_steps, mode="same_step")
    final, limit = call.pop("final_values"), call.pop("truncated")
    call["terminated"] = limit
    assert detectors(call) == ["truncation_as_termination"]
    call["rewards"] = call["rewards"].copy()
    call["rewards"][limit] += 0.99 * final
    assert detectors(call) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_a_large_reward_for_the_last_step_is_no_shifted_flag(mode, scale):
    """The TD error of an untrained critic is large there, and it is nearly 0 in the row of a reset."""
    value = lambda observations: scale * np.tanh(observations.sum(-1))  # noqa: E731
    (call,) = calls_of("CartPole-v1", value, 256, mode=mode, wrappers=(PaysAtTheEnd,))
    assert detectors(call) == []


@pytest.mark.parametrize("paid", [0.0, 50.0])
def test_a_reward_that_marks_first_steps_is_no_mistake(paid):
    """The values jump at the flags, and fit in the rows after them."""
    rng = np.random.default_rng(0)
    ends = np.stack([np.isin(np.arange(256), rng.integers(3, 40, 99).cumsum()) for _ in range(8)], 1)
    first = np.concatenate([np.ones((1, 8), bool), ends[:-1]])
    rewards, last = np.where(first, paid, rng.normal(1, 0.1, ends.shape)), np.full(8, 20.0)
    values = fastgae.discounted_returns(rewards, ends, last_values=last) + rng.normal(0, 0.1, ends.shape)
    assert detectors({"rewards": rewards, "values": values, "terminated": ends, "last_values": last}) == []


def test_episodes_of_two_steps_have_no_reset_rows():
    """They look like a reset row and one step."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 128, 8))
    ends = np.tile([[False], [True]], (64, 8))
    assert detectors({"rewards": ends * rewards, "values": values, "terminated": ends, "last_values": values[0]}) == []


def test_both_flags_at_the_same_few_steps_may_be_chance():
    rng = np.random.default_rng(0)
    call = small_call((8, 4))
    terminated = rng.random((8, 4)) < 0.4
    truncated = np.zeros_like(terminated)
    truncated[tuple(np.argwhere(terminated)[:2].T)] = True
    flags = {"truncated": truncated, "final_values": np.ones((8, 4))}
    assert detectors(call | flags | {"terminated": terminated}) == []
    assert detectors(call | flags | {"terminated": truncated}) == ["truncation_as_termination"]


def test_padded_answers_have_no_common_length_by_chance():
    """The longest of them are few."""
    rng = np.random.default_rng(0)
    lengths, rows = np.repeat(np.arange(48, 64), 4), np.arange(64)[:, np.newaxis]
    call = {"rewards": rng.normal(size=(64, 64)), "values": rng.normal(size=(64, 64)), "mask": rows < lengths}
    assert detectors(call | {"terminated": rows == lengths - 1, "last_values": 0.0}) == []


def penalised(envs):
    return TransformReward(envs, lambda rewards: rewards - 0.5)


@pytest.mark.parametrize("wrap", [penalised, lambda envs: NormalizeReward(penalised(envs))])
def test_wrappers_give_reset_rows_a_reward(wrap):
    value = fitted_value("CartPole-v1")
    (call,) = calls_of("CartPole-v1", value, 256, wrap=wrap)
    assert detectors(call) == []
    (call,) = calls_of("CartPole-v1", value, 256, mode="same_step", wrap=wrap)
    del call["final_values"]
    assert detectors(call | {"autoreset": "next_step"}) == ["not_next_step"]


def test_the_longest_episodes_of_many_are_no_limit():
    """Of all lengths from 10 to 30 steps, as many episodes have the longest as any other."""
    rng = np.random.default_rng(0)
    call = small_call((512, 8))
    call["terminated"] = np.stack([np.isin(np.arange(512), rng.integers(10, 31, 60).cumsum() - 1) for _ in range(8)], 1)
    assert detectors(call) == []


@pytest.mark.parametrize("rollout", ENDS[:2])
def test_flags_that_are_not_given_at_all(rollout):
    """A call without ``terminated`` says that each env is one sequence, but V begins anew in it again and again."""
    env_id, num_envs, num_steps = rollout
    call = record(env_id, "same_step", num_envs, num_steps, 0).arguments(fitted_value(env_id))
    assert detectors({name: call[name] for name in ("rewards", "values", "last_values")}) == ["flags_missing"]


def test_values_that_know_no_end_say_nothing_of_limits():
    recorded = record("CartPole-v1", "next_step", 8, 512, 0)
    untrained = random_value("CartPole-v1")
    assert recorded.terminated.any()
    assert not recorded.truncated.any()
    assert detectors(recorded.arguments(lambda observations: 50 + untrained(observations) / 10)) == []


def test_swapped_axes_are_found():
    for mode, (env_id, num_envs, num_steps) in product(MODES, [*FITTED, ENDS[-1]]):
        call = record(env_id, mode, num_envs, num_steps, 0).arguments_with_next_values(fitted_value(env_id))
        turned = {name: np.transpose(a) if np.ndim(a) else a for name, a in call.items()}
        assert not detectors(turned | {"time_axis": 1})
        (finding,) = fastgae.diagnose(**call, time_axis=1)
        assert finding.detector == "axes_swapped"
        assert "time_axis=0" in finding.change


def test_envs_that_do_nearly_the_same_are_no_axis_of_time():
    """As in a first rollout, if all start in one state: V changes from step to step, and hardly from env to env."""
    rng = np.random.default_rng(0)
    values = 20 * np.sin(np.arange(200)[:, np.newaxis] / 3) + rng.normal(0, 0.1, (200, 16))
    call = {"rewards": np.ones((200, 16)), "values": values, "terminated": np.zeros((200, 16)), "last_values": 1.0}
    assert detectors(call) == []
    call["values"] = rng.normal(0, 0.1, (200, 16)).cumsum(0) + 20 * rng.normal(size=16)
    assert detectors(call | {"time_axis": 1}) == ["axes_swapped"]


@pytest.mark.parametrize("plant", [mistakes.late, mistakes.early, mistakes.unflagged])
def test_values_without_a_trace_say_nothing(plant):
    """Noise, one number and zeros fit every reading of the flags."""
    recorded = record("CartPole-v1", "same_step", 8, 256, 0)
    for values in (np.random.default_rng(0).normal(size=(257, 8)), np.full((257, 8), 3.0), np.zeros((257, 8))):
        call = {"rewards": recorded.rewards, "values": values, "terminated": recorded.terminated}
        call["truncated"] = np.zeros_like(recorded.truncated)
        plant(call, recorded, None)
        call.pop("truncated", None)
        assert detectors(call) == []


def test_a_mask_hides_reset_rows():
    call = record("CartPole-v1", "next_step", 8, 256, 0).arguments(fitted_value("CartPole-v1"))
    del call["autoreset"]
    del call["truncated"]
    assert detectors(call) == ["reset_rows"]
    assert detectors({**call, "mask": fastgae.valid_steps(call["terminated"])}) == []


def test_where_rewards_are_often_0_they_tell_no_reset_rows():
    rewards, done = np.tile([1.0, 0.0], 20), np.isin(np.arange(40), [4, 20])
    call = {"rewards": rewards, "values": np.linspace(0.0, 1.0, 40), "terminated": done, "last_values": 1.0}
    assert detectors(call) == []


def test_row_0_may_be_a_reset_row():
    recorded, value = record("CartPole-v1", "next_step", 8, 256, 0), fitted_value("CartPole-v1")
    call = recorded.arguments(value)
    mistakes.no_prev_done(call, recorded, value)
    assert detectors(call) == ["prev_done"]
    done = recorded.terminated | recorded.truncated
    assert detectors({**call, "prev_done": done[-len(call["rewards"]) - 1]}) == []


def test_few_steps_say_nothing_of_row_0():
    """Rewards of 0 in row 0 alone are no finding before there are 32 other steps to compare them with."""
    for steps, expected in ((4, []), (5, ["prev_done"])):
        call = small_call((steps, 8)) | {"autoreset": "next_step"}
        call["rewards"][0] = 0
        assert detectors(call) == expected


def small_call(shape=(32, 4)):
    rewards, values = np.random.default_rng(0).normal(size=(2, *shape))
    return {
        "rewards": rewards,
        "values": values,
        "terminated": np.zeros(shape, bool),
        "last_values": np.ones(shape[1:]),
    }


def test_what_is_not_finite_is_counted_with_what_it_reaches():
    for name, bad in product(("rewards", "values"), (np.nan, np.inf, -np.inf)):
        call = small_call()
        call[name][5, 2] = bad
        (finding,) = fastgae.diagnose(**call)
        assert (finding.detector, finding.where.total, finding.where.first) == ("non_finite", 1, ((5, 2),))
        assert name in finding.what
        assert "6 of 128" in finding.why


@pytest.mark.parametrize("name", ["last_values", "last_advantages"])
def test_what_follows_the_last_row_and_is_not_finite(name):
    """Time may be the last axis."""
    call = small_call()
    after = np.where(np.arange(call["rewards"].shape[1]) == 2, np.inf, 1.0)
    call = {key: array.T if np.ndim(array) == 2 else array for key, array in call.items()} | {name: after}
    (finding,) = fastgae.diagnose(**call, time_axis=1)
    assert (finding.detector, finding.where.first) == ("non_finite", ((len(call["rewards"].T) - 1, 2),))
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
    call = small_call()
    call["rewards"][0, 0] = np.nan
    assert detectors({**call, "normalize": "per_env"}) == ["non_finite", "normalizer"]


def test_the_report():
    call = small_call()
    call["last_values"][:] = 0.0
    found = fastgae.diagnose(**call, gamma=float(np.float16(0.99)))
    assert found
    assert len(found) == 2
    assert found[0] is next(iter(found))
    assert isinstance(found[0], fastgae.Finding)
    text = str(found)
    assert text.startswith("2 findings in 32 steps of 4 environments\n\ncoefficient_rounded: ")
    assert "\n\n  episodes   0 ended\n  rewards    mean " in text
    assert "t=31 n=0, t=31 n=1" in text
    assert max(map(len, text.splitlines())) <= 100
    facts = json.loads(found.to_json())
    assert facts == json.loads(json.dumps(found.as_dict()))
    assert [fact["detector"] for fact in facts["findings"]] == ["coefficient_rounded", "last_row_bootstrap"]
    assert facts["findings"][1]["where"] == {"count": 4, "first": [[31, 0], [31, 1], [31, 2], [31, 3]]}
    assert set(facts["findings"][0]) == {"detector", "what", "where", "why", "change"}
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
    terminated[1, 0] = truncated[3, 0] = truncated[4, 1] = True
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
    one = fastgae.diagnose(np.ones(1), np.ones(1), [True], last_values=0.0)
    assert one.overview.size == "1 step of 1 environment"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_returns_is_no_variance(dtype):
    """All answers are wrong: with a lambda of 1, the returns are 0 but for the rounding of A + V."""
    values = np.random.default_rng(0).normal(size=(64, 16)).astype(dtype)
    call = {"rewards": 0 * values, "values": values, "last_values": np.zeros(16, dtype)}
    found = fastgae.diagnose(**call, terminated=None, gamma=1.0, gae_lambda=1.0)
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


def test_a_notebook_shows_the_report_and_a_picture_of_the_suspect_steps(tmp_path):
    pytest.importorskip("matplotlib")
    rollout, value = record("CartPole-v1", "same_step", 8, 256, 0), fitted_value("CartPole-v1")
    call = rollout.arguments(value)
    call["rewards"] = call["rewards"].copy()  # records are shared by the tests
    right = fastgae.diagnose(**call)
    mistakes.late(call, rollout, value)
    found = fastgae.diagnose(**call)
    (finding,) = found
    shown = found._repr_html_()
    assert "1 finding in 256 steps" in shown
    assert "&gt;" not in finding.detector
    assert all(text in shown for text in (finding.detector, finding.why, "explained variance"))
    assert finding._repr_html_() in shown
    env = finding.where.first[0][1]
    assert finding.where.times == tuple(np.flatnonzero(call["terminated"][:, env]))
    call["rewards"][:] = 7  # the loop goes on
    figure = found.plot()
    places, rewards, _, errors = figure.axes
    assert list(zip(*places.lines[0].get_data(), strict=True)) == list(finding.where.marks)
    assert len(finding.where.marks) == finding.where.total
    marks = errors.lines[-1]
    assert tuple(marks.get_xdata()) == finding.where.times
    np.testing.assert_array_equal(rewards.lines[0].get_ydata(), rollout.rewards[:, env])
    assert figure._repr_svg_().startswith("<?xml")
    assert not len(right.plot().axes[3].lines[-1].get_xdata())
    for shape in ((0, 3), (3, 0), (0,), (4,), (2, 3, 2)):
        empty = fastgae.diagnose(np.zeros(shape), np.zeros(shape), np.zeros(shape), last_values=1.0)
        assert len(empty.plot().axes) == 4
    empty.plot().savefig(tmp_path / "empty.svg")


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
    rewards = np.random.default_rng(0).normal(size=(4, 2, 3))
    rewards[:, 1, 2] = 0
    last_values = np.ones((2, 3))
    last_values[1, 2] = 0
    call = {"last_values": last_values, "normalize": "per_env"}
    found = fastgae.diagnose(rewards, np.zeros((4, 2, 3)), np.zeros((4, 2, 3)), **call)
    (finding,) = (each for each in found if each.detector == "normalizer")
    assert finding.where.first == ((0, 1, 2),)
    assert found.plot([*found].index(finding)).get_suptitle() == "normalizer, env 1, 2"


@pytest.mark.parametrize("returns_lambda", [None, 0.5])
def test_the_explained_variance_is_that_of_the_returns(returns_lambda):
    call = small_call((64, 4)) | {"gamma": 0.9, "gae_lambda": 0.8, "returns_lambda": returns_lambda}
    returns = fastgae.gae(**call).returns
    explained = 1 - np.var(returns - call["values"]) / np.var(returns)
    np.testing.assert_allclose(fastgae.diagnose(**call).overview.explained_variance, explained, rtol=1e-4)
