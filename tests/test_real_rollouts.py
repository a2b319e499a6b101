"""Real environments in every autoreset mode: the same steps have the same advantages, those of each episode by itself.

Every reset is seeded by env and episode, and policy and values are functions of one observation, so that the modes see
the same episodes and differ only in where they put what they saw.
"""

import contextlib
import functools
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET
from support.cases import assert_same_bits

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

NUM_ENVS, ROWS = 3, 64
GAMMA, GAE_LAMBDA = 0.97, 0.9
# Short limits, so that episodes are truncated again and again; and how they may end.
ENVIRONMENTS = {
    "CartPole-v1": (20, {"terminated", "truncated"}),
    "Pendulum-v1": (20, {"truncated"}),
    "InvertedPendulum-v5": (6, {"terminated", "truncated"}),
    "Hopper-v5": (15, {"terminated", "truncated"}),
}
MODES = list(AutoresetMode)
# Windows of one row, windows that cut episodes, their last step and the reset after it off, and the whole.
WINDOWS = [1, 5, 20, ROWS]


def make_env(env_id):
    return gymnasium.make(env_id, max_episode_steps=ENVIRONMENTS[env_id][0])


def seed_of(env, episode):
    return 1000 * env + episode


class SeededResets(gymnasium.Wrapper):
    """Begins the same episodes in the same order, whoever resets it."""

    def __init__(self, inner, number):
        super().__init__(inner)
        self.number, self.episode = number, -1

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return self.env.reset(seed=seed_of(self.number, self.episode), options=options)


def noise(observation):
    """A number in [-1, 1] that looks random: equal observations, and only they, give the same."""
    return np.sin(1e3 * np.sum(observation, dtype=np.float64))


def action_of(space, observation):
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(noise(observation) > 0)
    return (noise(observation) * space.high).astype(space.dtype)


def value_of(observation):
    return 3.0 + np.sum(np.tanh(observation), dtype=np.float64)


def values_of(observations):
    return np.array([value_of(observation) for observation in observations])


@dataclass(frozen=True)
class Rollout:
    """(rows, envs), as a training loop would store them; NaN where the loop knows no number."""

    mode: AutoresetMode
    rewards: np.ndarray
    values: np.ndarray  # one row longer
    terminated: np.ndarray
    truncated: np.ndarray
    final_values: np.ndarray  # SAME_STEP: where truncated
    next_values: np.ndarray  # DISABLED

    @property
    def done(self):
        return self.terminated | self.truncated

    @property
    def real(self):
        if self.mode == AutoresetMode.NEXT_STEP:
            return fastgae.valid_steps(self.terminated, self.truncated)
        return np.ones_like(self.done)

    def call(self, rows=slice(0, None), envs=slice(None), dtype=np.float64, **options):
        """What `fastgae.gae` answers for a window of it."""
        first, last, _ = rows.indices(len(self.rewards))
        arguments = {
            "rewards": self.rewards[rows, envs].astype(dtype),
            "values": self.values[first:last, envs].astype(dtype),
            "terminated": self.terminated[rows, envs],
            "truncated": self.truncated[rows, envs],
            "autoreset": self.mode,
            "gamma": GAMMA,
            "gae_lambda": GAE_LAMBDA,
        }
        if self.mode == AutoresetMode.DISABLED:
            arguments["next_values"] = self.next_values[rows, envs].astype(dtype)
        else:
            arguments["last_values"] = self.values[last, envs].astype(dtype)
        if self.mode == AutoresetMode.SAME_STEP:
            arguments["final_values"] = self.final_values[rows, envs].astype(dtype)
        if self.mode == AutoresetMode.NEXT_STEP and first:
            arguments["prev_done"] = self.done[first - 1, envs]
        return fastgae.gae(**(arguments | options))


@pytest.fixture(params=ONE_TARGET)
def backend(request):
    """Return one CPU target of each backend, because nothing here is about kernels."""
    return request.param


@functools.cache
def rollout_of(env_id, mode):
    make = [functools.partial(lambda n: SeededResets(make_env(env_id), n), n) for n in range(NUM_ENVS)]
    rewards, final_values, next_values = np.full((3, ROWS, NUM_ENVS), np.nan)
    terminated, truncated = np.empty((2, ROWS, NUM_ENVS), bool)
    values = np.empty((ROWS + 1, NUM_ENVS))
    with contextlib.closing(SyncVectorEnv(make, autoreset_mode=mode)) as envs:
        observations, _ = envs.reset()
        for t in range(ROWS):
            values[t] = values_of(observations)
            actions = np.array([action_of(envs.single_action_space, one) for one in observations])
            observations, rewards[t], terminated[t], truncated[t], info = envs.step(actions)
            if mode == AutoresetMode.SAME_STEP:
                for n in np.flatnonzero(truncated[t]):
                    final_values[t, n] = value_of(info["final_obs"][n])
            if mode == AutoresetMode.DISABLED:
                next_values[t] = values_of(observations)
                done = terminated[t] | truncated[t]
                if done.any():
                    observations, _ = envs.reset(options={"reset_mask": done})
        values[ROWS] = values_of(observations)
    return Rollout(mode, rewards, values, terminated, truncated, final_values, next_values)


@functools.cache
def episodes_of(env_id, env):
    """(rewards, values, ending) of single episodes, as many steps as rows or more; one value more than rewards."""
    episodes, steps = [], 0
    with contextlib.closing(make_env(env_id)) as single:
        while steps < ROWS:
            observation, _ = single.reset(seed=seed_of(env, len(episodes)))
            rewards, values, ending = [], [value_of(observation)], None
            while ending is None:
                observation, reward, ended, cut, _ = single.step(action_of(single.action_space, observation))
                rewards.append(float(reward))
                values.append(value_of(observation))
                ending = "terminated" if ended else "truncated" if cut else None
            episodes.append((np.array(rewards), np.array(values), ending))
            steps += len(rewards)
    return episodes


@functools.cache
def advantages_by_episode(env_id, env, first, last):
    """Of an env's steps [first, last), from the definition: discounted sums of deltas, episode by episode."""
    advantages, begin = [], 0
    for rewards, values, ending in episodes_of(env_id, env):
        following = values[1:].copy()
        if ending == "terminated":
            following[-1] = 0.0
        deltas = rewards + GAMMA * following - values[:-1]
        stop = min(len(rewards), last - begin)
        for t in range(max(0, first - begin), stop):
            advantages.append(np.sum((GAMMA * GAE_LAMBDA) ** np.arange(stop - t) * deltas[t:stop]))
        begin += len(rewards)
    return np.array(advantages)


def windows(length):
    return [slice(first, min(first + length, ROWS)) for first in range(0, ROWS, length)]


@pytest.fixture(params=ENVIRONMENTS)
def env_id(request):
    if request.param.endswith("-v5") and find_spec("mujoco") is None:
        pytest.skip("MuJoCo is not installed")
    return request.param


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request):
    return request.param


def test_episodes_end_where_the_tests_need_it(env_id):
    for env in range(NUM_ENVS):
        assert len(episodes_of(env_id, env)) > 2
    endings = {ending for env in range(NUM_ENVS) for *_, ending in episodes_of(env_id, env)}
    assert endings == ENVIRONMENTS[env_id][1]
    for mode in MODES:
        rollout = rollout_of(env_id, mode)
        last_rows = [rows.stop - 1 for length in WINDOWS[1:] for rows in windows(length)]
        # Some windows end with an episode, so that the next begins with a reset row in NEXT_STEP, and some inside one.
        assert rollout.done[last_rows].any()
        assert not rollout.done[last_rows].all()
        assert rollout.truncated.any()


def test_modes_see_the_same_steps(env_id, mode):
    rollout = rollout_of(env_id, mode)
    for env in range(NUM_ENVS):
        real = rollout.real[:, env]
        episodes = episodes_of(env_id, env)
        rewards = np.concatenate([rewards for rewards, *_ in episodes])
        values = np.concatenate([values[:-1] for _, values, _ in episodes])
        np.testing.assert_array_equal(rollout.rewards[real, env], rewards[: real.sum()])
        np.testing.assert_array_equal(rollout.values[:-1][real, env], values[: real.sum()])
        assert (rollout.rewards[~real, env] == 0).all()


def test_advantages_are_those_of_each_episode_by_itself(env_id, mode, backend, dtype):
    """Windows that cut episodes anywhere, in a done and in a reset too; the next one knows of it by prev_done."""
    rollout = rollout_of(env_id, mode)
    tolerance = {"float32": 2e-5, "float64": 1e-12}[dtype.name]
    for rows in (rows for length in WINDOWS for rows in windows(length)):
        got = rollout.call(rows, dtype=dtype, backend=backend)
        for env in range(NUM_ENVS):
            real = rollout.real[rows, env]
            first = rollout.real[: rows.start, env].sum()
            expected = advantages_by_episode(env_id, env, first, first + real.sum())
            scale = 1.0 + np.abs(rollout.rewards).max() + np.abs(rollout.values).max()
            np.testing.assert_allclose(got.advantages[real, env], expected, rtol=tolerance, atol=tolerance * scale)
            assert (got.advantages[~real, env] == 0).all()
            values = rollout.values[rows.start : rows.stop, env].astype(dtype)
            assert_same_bits(got.returns[:, env], got.advantages[:, env] + values)


@pytest.mark.parametrize("other", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
def test_modes_agree_bit_for_bit(env_id, other, backend, dtype):
    rollout, dense = rollout_of(env_id, AutoresetMode.NEXT_STEP), rollout_of(env_id, other)
    for rows in (rows for length in WINDOWS for rows in windows(length)):
        got = rollout.call(rows, dtype=dtype, backend=backend)
        for env in range(NUM_ENVS):
            real = rollout.real[rows, env]
            first = rollout.real[: rows.start, env].sum()
            expected = dense.call(slice(first, first + real.sum()), env, dtype, backend=backend)
            assert_same_bits(got.advantages[real, env], expected.advantages)
            assert_same_bits(got.returns[real, env], expected.returns)


def test_what_a_wrong_call_would_do(env_id):
    """The rollouts tell right from wrong: the usual mistakes are errors, or far off."""
    rollout = rollout_of(env_id, AutoresetMode.NEXT_STEP)
    right = rollout.call(backend="numpy").advantages[rollout.real]
    with pytest.raises(ValueError, match="autoreset"):
        rollout.call(autoreset=None, backend="numpy")
    never = np.zeros_like(rollout.truncated)
    for wrong in (
        {"terminated": rollout.done, "truncated": never},  # truncation taken for termination
        {"truncated": never},  # truncation ignored: the next episode leaks in
    ):
        got = rollout.call(backend="numpy", **wrong).advantages[rollout.real]
        assert np.abs(got - right).max() > 0.5
