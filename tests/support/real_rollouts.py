"""Real rollouts in each of Gymnasium's autoreset modes, with values of every observation."""

import contextlib
import functools
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from fastgae.cli import rollout
from fastgae.compat.gymnasium import collect

MODES = ("next_step", "same_step", "disabled")
SEED = 100  # of rollouts that values are fitted to


def _taxi():
    """Return Taxi with a vector for the row, the column, the passenger and the destination."""
    env = gymnasium.make("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3").unwrapped
    places = np.array([100, 20, 4, 1]), np.array([5, 5, 5, 4])

    def parts(state):
        digits = [state // by % many for by, many in zip(*places, strict=True)]
        return np.concatenate([np.eye(5, dtype=np.float32)[digit] for digit in digits])

    return gymnasium.wrappers.TransformObservation(env, parts, gymnasium.spaces.Box(0, 1, (20,), np.float32))


gymnasium.register("CartPoleCut-v1", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
gymnasium.register("TaxiParts-v1", _taxi, max_episode_steps=200)


@dataclass(frozen=True, eq=False)  # each is its own key in a cache
class Recorded:
    """The arrays that a loop around env.step collects. next_observations are from before any reset."""

    mode: str
    observations: np.ndarray
    next_observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last_observations: np.ndarray

    def arguments(self, value):
        """Return the arguments of a correct call."""
        values, next_values, last_values = self.values_by(value)
        call = {
            "rewards": self.rewards,
            "values": values,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "last_values": last_values,
            "autoreset": self.mode,
        }
        if self.mode != "next_step":
            call["final_values"] = next_values[self.truncated]
        return call

    def arguments_with_next_values(self, value):
        """Return the arguments of another correct call."""
        call = self.arguments(value)
        del call["last_values"]
        call.pop("final_values", None)
        return {**call, "next_values": self.values_by(value)[1]}

    @functools.cache  # noqa: B019 (records are few, and kept by a cache themselves)
    def values_by(self, value):
        """Return the values of the observations, of the next observations and of the last ones."""
        return tuple(map(value, (self.observations, self.next_observations, self.last_observations)))


def make(env_id, mode, num_envs):
    options = {"autoreset_mode": AutoresetMode[mode.upper()]}
    return contextlib.closing(gymnasium.make_vec(env_id, num_envs, "sync", vector_kwargs=options))


@functools.cache
def record(env_id, mode, num_envs, num_steps, seed, act=None):
    """Record a policy, the uniformly random one if there is none."""
    with make(env_id, mode, num_envs) as envs:
        envs.action_space.seed(seed)
        current, _ = envs.reset(seed=seed)
        rows = []
        for _ in range(num_steps):
            actions = act(current).actions if act else envs.action_space.sample()
            after, rewards, terminated, truncated, info = envs.step(actions)
            before_reset, done = after.copy(), terminated | truncated
            if mode == "same_step":
                for n in np.flatnonzero(done):
                    before_reset[n] = info["final_obs"][n]
            elif mode == "disabled" and done.any():
                after, _ = envs.reset(options={"reset_mask": done})
            rows.append((current.copy(), before_reset, rewards, terminated, truncated))
            current = after.copy()
    observations, following, rewards, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
    return Recorded(mode, observations, following, rewards.astype(np.float32), terminated, truncated, current)


@functools.cache
def fitted_value(env_id, act=None):
    """Return a value function fitted to the discounted returns of another rollout."""
    with contextlib.closing(rollout.make_envs(env_id, 8)) as envs:
        data = next(collect(envs, act, 2048, seed=SEED)) if act else rollout.collect(envs, 512, SEED)
    value = rollout.ValueFunction(data.observations, SEED)
    value.fit(data, 0.99)
    return value


@functools.cache
def random_value(env_id):
    """Return a value function that was never trained."""
    with contextlib.closing(rollout.make_envs(env_id, 8)) as envs:
        data = rollout.collect(envs, 64, SEED)
    value = rollout.ValueFunction(data.observations, SEED)
    value._weights = np.random.default_rng(SEED).normal(size=value._weights.shape)
    return value
