"""The rollout and the value function of the demo, from environments stepped one by one."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten
from gymnasium.vector.utils import batch_space, iterate

import fastgae
from fastgae.cli import rollout

# CartPole terminates, Pendulum is truncated after 200 steps (in the last row, before it, and not at all), FrozenLake
# has discrete observations.
ROLLOUTS = [
    ("CartPole-v1", 3, 128),
    ("Pendulum-v1", 2, 200),
    ("Pendulum-v1", 2, 256),
    ("Pendulum-v1", 2, 50),
    ("FrozenLake-v1", 3, 128),
]


def episodes_of(env_id, env, num_envs, num_steps, seed):
    """The episodes of one environment, stepped on its own without any vectorisation or autoreset."""
    single = gymnasium.make(env_id)
    actions = batch_space(single.action_space, num_envs)
    actions.seed(seed)
    space = single.observation_space
    episodes, steps = [], 0
    while steps < num_steps:
        observation, _ = single.reset(seed=seed + env) if not episodes else single.reset()
        episode = {"observations": [flatten(space, observation)], "rewards": [], "ending": "cut off"}
        while episode["ending"] == "cut off" and steps < num_steps:
            action = list(iterate(actions, actions.sample()))[env]
            observation, reward, terminated, truncated, _ = single.step(action)
            episode["observations"].append(flatten(space, observation))
            episode["rewards"].append(float(reward))
            episode["ending"] = "terminated" if terminated else "truncated" if truncated else "cut off"
            steps += 1
        episodes.append(episode)
    single.close()
    return episodes


@pytest.mark.parametrize(("env_id", "num_envs", "num_steps"), ROLLOUTS)
def test_demo_advantages_are_those_of_each_episode_by_itself(env_id, num_envs, num_steps, collected):
    gamma, gae_lambda, seed = 0.97, 0.9, 3
    data = collected(env_id, num_envs, num_steps, seed)
    values = rollout.ValueFunction(data.observations, seed)
    values.fit(data, gamma)
    result = fastgae.gae(**data.arguments(values), gamma=gamma, gae_lambda=gae_lambda)

    for env in range(num_envs):
        episodes = episodes_of(env_id, env, num_envs, num_steps, seed)
        rewards = [reward for episode in episodes for reward in episode["rewards"]]
        np.testing.assert_array_equal(data.rewards[:, env], rewards)
        ends = np.cumsum([len(episode["rewards"]) for episode in episodes]) - 1
        for flags, ending in ((data.terminated, "terminated"), (data.truncated, "truncated")):
            expected = [t for t, episode in zip(ends, episodes, strict=True) if episode["ending"] == ending]
            assert np.flatnonzero(flags[:, env]).tolist() == expected

        advantages = []
        for episode in episodes:
            # One value more than rewards: after the last step comes the final observation, which is worth nothing
            # only where the episode terminated.
            value = values(np.array(episode["observations"], np.float32)).astype(np.float64)
            if episode["ending"] == "terminated":
                value[-1] = 0.0
            deltas = np.array(episode["rewards"]) + gamma * value[1:] - value[:-1]
            decay = (gamma * gae_lambda) ** np.arange(len(deltas))
            advantages += [np.sum(decay[: len(deltas) - t] * deltas[t:]) for t in range(len(deltas))]
        scale = np.abs(result.returns).max()
        np.testing.assert_allclose(result.advantages[:, env], advantages, rtol=1e-4, atol=1e-5 * scale)


def test_rollouts_are_repeatable_by_seed(collected):
    first, again, other = (collected("CartPole-v1", 4, 64, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.observations, again.observations)
    assert not np.array_equal(first.observations, other.observations)
    fitted = [rollout.ValueFunction(data.observations, 5) for data in (first, again)]
    assert fitted[0].fit(first, 0.99) == fitted[1].fit(again, 0.99)
    np.testing.assert_array_equal(fitted[0](first.observations), fitted[1](again.observations))


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Taxi-v3", "Blackjack-v1"])
def test_every_kind_of_space_can_be_collected_and_fitted(env_id, collected):
    if env_id == "Taxi-v3":
        env_id = max(name for name in gymnasium.registry if name.startswith("Taxi-"))
    data = collected(env_id, 3, 40)
    values = rollout.ValueFunction(data.observations, 0)
    values.fit(data, 0.99)
    assert values(data.observations).shape == (40, 3)
    assert np.isfinite(values(data.observations)).all()
    assert data.arguments(values)["rewards"].dtype == values(data.observations).dtype == np.float32


def test_value_function_is_really_fitted(collected):
    data = collected("Pendulum-v1", 8, 128)
    values = rollout.ValueFunction(data.observations, 0)
    assert values.fit(data, 0.99) > 0.8
    # And it is not only memory: it also explains a rollout that it has not seen.
    unseen = collected("Pendulum-v1", 8, 128, seed=100)
    returns = fastgae.gae(**unseen.arguments(values), gamma=0.99, gae_lambda=1.0).returns
    assert np.var(returns - values(unseen.observations)) < 0.3 * np.var(returns)


def test_value_function_finds_the_value_of_an_endless_constant_reward(collected):
    # Acrobot pays -1 at every step, and no random policy ends an episode so soon: V = -1 / (1 - gamma).
    data = collected("Acrobot-v1", 2, 64)
    values = rollout.ValueFunction(data.observations, 0)
    assert values.fit(data, 0.9) is None
    np.testing.assert_allclose(values(data.observations), -10.0, rtol=1e-3)
