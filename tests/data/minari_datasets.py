"""Real datasets: episodes of Gymnasium's environments, written by Minari itself."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

minari = pytest.importorskip("minari")
from minari.data_collector import EpisodeBuffer  # noqa: E402

EPISODES = 4


def episode(env, seed, longest):
    """Return one episode of random actions. It is truncated by the environment's limit of time, or by ours."""
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    observations, steps = [observation], []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        steps.append((action, reward, terminated, truncated or (len(steps) + 1 == longest and not terminated)))
    fields = zip(("actions", "rewards", "terminations", "truncations"), zip(*steps, strict=True), strict=True)
    arrays = {name: np.array(array) for name, array in fields}
    return EpisodeBuffer(id=seed, observations=np.array(observations), infos={}, **arrays)


def write_dataset(folder, env_id, data_format):
    """Write a dataset in one of Minari's formats, and return its folder and its episodes."""
    env = gym.make(env_id)
    episodes = [episode(env, seed, longest=17 if seed == 3 else 10**6) for seed in range(EPISODES)]
    env.close()
    return write_buffers(folder, episodes, env=env, data_format=data_format), episodes


def write_buffers(folder, episodes, **options):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns of every description that a dataset lacks
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        minari.create_dataset_from_buffers("test/random-v0", episodes, **options)
    return folder / "test" / "random-v0"
