"""Planted mistakes on real rollouts: each is found by its detector, and the correct rollout gives no finding."""

import contextlib
import functools
import itertools
from itertools import product

import numpy as np
import pytest

import fastgae

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.wrappers.vector import NormalizeReward, TransformReward

from fastgae.compat.gymnasium import collect
from support import mistakes
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


CUT, TAXI, PENDULUM = ("CartPoleCut-v1", 8, 256), ("TaxiParts-v1", 8, 512), ("Pendulum-v1", 8, 512)
ENDS = (("CartPole-v1", 8, 256), PENDULUM, CUT, ("Acrobot-v1", 8, 640))
LIMITS = (PENDULUM, ("Pendulum-v1", 4, 256), CUT, TAXI, ("Acrobot-v1", 8, 640))
FITTED = (("CartPole-v1", 8, 512), PENDULUM)
# ``python -m support.planted`` plants them in rollouts of trained policies, too.
PLANTED = [
    ("late", "flags_shifted", MODES, ENDS[:3]),
    ("early", "flags_shifted", MODES, ENDS[:3]),
    ("values_late", "values_shifted", MODES[:1], (*ENDS[:3], TAXI)),
    ("values_early", "values_shifted", MODES, (*ENDS[:3], TAXI)),
    ("merged", "truncation_as_termination", MODES, LIMITS),
    ("both", "truncation_as_termination", MODES, LIMITS),
    ("unflagged", "flags_missing", GIVES_FINAL, ENDS[:3]),
    ("inverted", "flags_inverted", MODES, ENDS),
    ("no_bootstrap", "last_row_bootstrap", MODES, (("CartPole-v1", 1, 256), TAXI, *ENDS)),
    ("own_bootstrap", "last_row_bootstrap", MODES, ENDS),
    ("of_next_episode", "truncation_bootstrap", GIVES_FINAL, LIMITS),
    ("of_same_state", "truncation_bootstrap", GIVES_FINAL, LIMITS),
    ("zero_final", "truncation_bootstrap", GIVES_FINAL, LIMITS),
    ("no_autoreset", "reset_rows", MODES[:1], (TAXI, *ENDS)),
    ("wrong_autoreset", "not_next_step", GIVES_FINAL, (TAXI, *ENDS)),
    ("padded", "padding", MODES, (FITTED[0], CUT)),
    ("other_gamma", "gamma_or_scale", MODES, (CUT, *FITTED)),
    ("rescaled", "gamma_or_scale", MODES, FITTED),
    ("clipped", "gamma_or_scale", MODES, [PENDULUM]),
    ("whitened", "rewards_whitened", GIVES_FINAL, (PENDULUM, TAXI)),
    ("values_of_other_envs", "envs_shuffled", MODES, (CUT, *FITTED)),
    ("rewards_late", "rewards_shifted", MODES[:1], [PENDULUM]),
    ("rewards_early", "rewards_shifted", MODES[:1], [PENDULUM]),
]
# What is also found if the values were never trained: they fit any gamma and scale, and show the others by chance.
UNTRAINED = {
    **{each: ([],) for each in ("gamma_or_scale", "rewards_whitened")},
    **{each: ([], [each]) for each in ("envs_shuffled", "flags_missing")},
}
SHIFTED = ("flags_shifted", "values_shifted")  # seldom: V must jump
ROWS = ("in the row before", "in the flag's row", "in the row after", "two rows after")


@pytest.mark.parametrize(("mistake", "detector", "modes", "rollouts"), PLANTED)
def test_a_planted_mistake_is_found(mistake, detector, modes, rollouts):
    plant = getattr(mistakes, mistake)
    for mode, (env_id, num_envs, num_steps), form in product(modes, rollouts, FORMS):
        where, recorded = f"{mode}, {env_id}, {num_envs} envs, {form}", record(env_id, mode, num_envs, num_steps, 0)
        untrained, call = (getattr(recorded, form)(value(env_id)) for value in (random_value, fitted_value))
        plant(untrained, recorded, random_value(env_id))
        assert detectors(untrained) in UNTRAINED.get(detector, ([detector],)) or detector in SHIFTED, where
        plant(call, recorded, fitted_value(env_id))
        found = fastgae.diagnose(**call)
        assert [finding.detector for finding in found] == [detector], where
        if mistake in ("late", "early"):
            assert f"flags look one step {mistake}" in found[0].what
            assert ROWS[2 * (mistake == "early") + (mode == "next_step")] in found[0].what
            flagged = call["terminated"] | call["truncated"]
            assert 0 < found[0].where.total <= flagged.sum()
            assert all(flagged[index] for index in found[0].where.first)
        if mistake in ("rewards_late", "rewards_early"):
            assert mistake.replace("_", " look one step ") in found[0].what


def learning(value, share, of_states, observations):
    """Return values of a critic that has learned a share of all, or of the mean alone, which is often learned first."""
    values = value(observations)
    return share * (values.mean() + of_states * (values - values.mean()))


def odd_calls():
    """Yield correct calls of real rollouts that look like mistakes, and what they are."""
    for mode in MODES:
        call = record("MountainCar-v0", mode, 8, 256, 0).arguments(random_value("MountainCar-v0"))
        scale = 1 + 0.01 * np.arange(256, dtype=np.float32)[:, np.newaxis]
        what = "rewards of one scale that drifts, as VecNormalize's: limits that fall together share a reward"
        yield f"{what}, {mode}", call | {"rewards": call["rewards"] / scale}
        for size in (0.1, 1.0):
            value = lambda states, size=size: size * np.tanh(states.sum(-1))  # noqa: E731
            call = record("CartPole-v1", mode, 8, 256, 0).arguments(value)
            what = "a large reward for the last step, as LunarLander's for a crash: it makes a large TD error"
            yield f"{what}, {mode}, {size}", call | {"rewards": np.where(call["terminated"], -100, call["rewards"])}
    envs = ("CartPole-v1", "Pendulum-v1", "TaxiParts-v1")
    for env_id, share, of_states in product(envs, (0.02, 0.1, 0.3, 0.6), (0.0, 1.0)):
        value = functools.partial(learning, fitted_value(env_id), share, of_states)
        call = record(env_id, "same_step", 8, 512, 0).arguments(value)
        yield f"a critic that has only begun to learn: {env_id}, {share}, {of_states}", call
    for env_id, scale in product({rollout[0] for rollout in (*ENDS, TAXI)}, (1.0, 0.01, 0.001)):
        call = record(env_id, "same_step", 8, 256, 0).arguments(random_value(env_id))
        call["rewards"] = call["rewards"] * np.float32(scale)
        yield f"values of an untrained critic may have any size: {env_id}, {scale}", call
    value = random_value("CartPole-v1")
    call = record("CartPole-v1", "next_step", 8, 512, 0).arguments(lambda states: 50 + value(states) / 10)
    yield "values that know no end say nothing of limits", call


def test_correct_calls_that_look_like_mistakes():
    for what, call in odd_calls():
        assert detectors(call) == [], what


class CutOff(gymnasium.Wrapper):
    """Truncate at random steps, so that no length is common to the episodes."""

    def __init__(self, env):
        super().__init__(env)
        self.generator = np.random.default_rng(0)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated or self.generator.random() < 0.03, info


def rollouts_of(env_id, num_steps, count=1, mode="next_step", wrap=lambda envs: envs, wrappers=()):
    """Return successive rollouts of one training, with random actions."""
    options = {"autoreset_mode": gymnasium.vector.AutoresetMode[mode.upper()]}
    envs = wrap(gymnasium.make_vec(env_id, 8, "sync", vector_kwargs=options, wrappers=wrappers))
    envs.action_space.seed(0)
    with contextlib.closing(envs):
        rollouts = collect(envs, lambda _: envs.action_space.sample(), num_steps, seed=0)
        return [*itertools.islice(rollouts, count)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_merged_dones_with_next_step(env_id):
    """Where the row after a done shows V of the final observation, a good V tells limits from ends."""
    (rollout,) = rollouts_of(env_id, 512, wrappers=(CutOff,))
    for value, expected in ((fitted_value(env_id), ["terminated_by_limit"]), (random_value(env_id), [])):
        call = rollout.arguments(value)
        assert detectors(call) == []
        mistakes.merged(call, None, value)
        assert detectors(call) == expected


@pytest.mark.parametrize(("env_id", "num_steps"), [("Pendulum-v1", 512), ("MountainCar-v0", 640)])
def test_merged_dones_in_every_rollout_of_a_training(env_id, num_steps):
    """Rollouts after the first begin inside an episode, which looks shorter than the others."""
    for rollout in rollouts_of(env_id, num_steps, 5):
        call = rollout.arguments(random_value(env_id))
        assert detectors(call) == []
        mistakes.merged(call, None, None)
        assert detectors(call) == ["truncation_as_termination"]
        assert "final_values" not in fastgae.diagnose(**call)[0].change  # gae refuses them beside next_step


@pytest.mark.parametrize(("env_id", "num_steps"), [("Pendulum-v1", 512), ("MountainCar-v0", 640)])
def test_rewards_that_hold_the_bootstraps(env_id, num_steps):
    """As in a buffer of Stable-Baselines3."""
    call = record(env_id, "same_step", 8, num_steps, 0).arguments(fitted_value(env_id))
    final, limit = call.pop("final_values"), call.pop("truncated")
    call["terminated"] = limit
    assert detectors(call) == ["truncation_as_termination"]
    call["rewards"] = call["rewards"].copy()  # records are shared by the tests
    call["rewards"][limit] += 0.99 * final
    assert detectors(call) == []


def penalised(envs):
    return TransformReward(envs, lambda rewards: rewards - 0.5)


def whitened(rewards, axis=None):
    return (rewards - rewards.mean(axis)) / rewards.std(axis)


@pytest.mark.parametrize(
    ("env_id", "wrap", "change"),
    [
        ("CartPole-v1", penalised, None),
        ("CartPole-v1", lambda envs: NormalizeReward(penalised(envs)), None),
        ("Pendulum-v1", lambda envs: envs, whitened),
        ("Pendulum-v1", lambda envs: envs, lambda rewards: whitened(rewards, 0)),
    ],
)
def test_reset_rows_may_have_a_reward(env_id, wrap, change):
    value = fitted_value(env_id)
    for mode in ("next_step", "same_step"):
        (rollout,) = rollouts_of(env_id, 512, mode=mode, wrap=wrap)
        call = rollout.arguments(value)
        if mode == "same_step":
            mistakes.wrong_autoreset(call, None, value)
        call["rewards"] = change(call["rewards"]) if change else call["rewards"]
        assert detectors(call) == ["not_next_step"] * (mode == "same_step")


def test_whitened_rewards_of_reset_rows_that_pass_as_steps():
    call = record("CartPole-v1", "next_step", 8, 512, 0).arguments(random_value("CartPole-v1"))
    call["terminated"] = call.pop("truncated") | call["terminated"]
    (finding,) = fastgae.diagnose(**{**call, "rewards": whitened(call["rewards"]), "autoreset": None})
    assert finding.detector == "flags_shifted"
    assert "or the rows after the flags are reset rows" in finding.what


def test_flags_that_are_not_given_at_all():
    """A call without ``terminated`` says that each env is one sequence, but V begins anew in it again and again."""
    for env_id, num_envs, num_steps in ENDS[:2]:
        call = record(env_id, "same_step", num_envs, num_steps, 0).arguments(fitted_value(env_id))
        assert detectors({name: call[name] for name in ("rewards", "values", "last_values")}) == ["flags_missing"]


def test_swapped_axes_are_found():
    for mode, (env_id, num_envs, num_steps) in product(MODES, [*FITTED, ENDS[-1]]):
        call = record(env_id, mode, num_envs, num_steps, 0).arguments_with_next_values(fitted_value(env_id))
        turned = {name: np.transpose(a) if np.ndim(a) else a for name, a in call.items()}
        assert not detectors(turned | {"time_axis": 1})
        (finding,) = fastgae.diagnose(**call, time_axis=1)
        assert finding.detector == "axes_swapped"
        assert "time_axis=0" in finding.change


def test_values_without_a_trace_say_nothing():
    """Noise, one number and zeros fit every reading of the flags."""
    recorded = record("CartPole-v1", "same_step", 8, 256, 0)
    noise = np.random.default_rng(0).normal(size=(257, 8))
    for plant, values in product(
        (mistakes.late, mistakes.early, mistakes.unflagged), (noise, 3 + 0 * noise, 0 * noise)
    ):
        call = {"rewards": recorded.rewards, "values": values, "terminated": recorded.terminated}
        call["truncated"] = np.zeros_like(recorded.truncated)
        plant(call, recorded, None)
        assert detectors(call | {"truncated": None}) == []


def test_a_mask_hides_reset_rows():
    call = record("CartPole-v1", "next_step", 8, 256, 0).arguments(fitted_value("CartPole-v1"))
    del call["autoreset"]
    del call["truncated"]
    assert detectors(call) == ["reset_rows"]
    assert detectors({**call, "mask": fastgae.valid_steps(call["terminated"])}) == []


def test_row_0_may_be_a_reset_row():
    recorded, value = record("CartPole-v1", "next_step", 8, 256, 0), fitted_value("CartPole-v1")
    call = recorded.arguments(value)
    mistakes.no_prev_done(call, recorded, value)
    assert detectors(call) == ["prev_done"]
    done = recorded.terminated | recorded.truncated
    assert detectors({**call, "prev_done": done[-len(call["rewards"]) - 1]}) == []


def test_a_notebook_shows_the_report_and_a_picture_of_the_suspect_steps(tmp_path):
    pytest.importorskip("matplotlib")
    rollout, value = record("CartPole-v1", "same_step", 8, 256, 0), fitted_value("CartPole-v1")
    call = rollout.arguments(value)
    call["rewards"] = call["rewards"].copy()
    right = fastgae.diagnose(**call)
    mistakes.late(call, rollout, value)
    found = fastgae.diagnose(**call)
    (finding,) = found
    shown = found._repr_html_()
    assert "1 finding in 256 steps" in shown
    assert all(text in shown for text in (finding._repr_html_(), finding.detector, finding.why, "explained variance"))
    env = finding.where.first[0][1]
    assert finding.where.times == tuple(np.flatnonzero(call["terminated"][:, env]))
    call["rewards"][:] = 7  # the loop goes on
    with pytest.raises(IndexError, match=r"^finding must be the index of one of 1 findings, got 1$"):
        found.plot(1)
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
