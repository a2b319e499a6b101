"""RLlib: what PPO's learner makes of episodes, and the function below its GAE connector."""

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

from fastgae.compat import rllib

from .compare import Hooked


def hooks(rng):
    env = gym.make("CartPole-v1")
    calls = [updated(env, **learner) for learner in ({}, {"learner_class": rllib.PPOTorchLearner})]
    yield Hooked("PPO's learner: its batch, and its weights after an update", *calls)

    steps = 4000
    values, rewards = rng.normal(size=(2, steps)).astype(np.float32)
    given = values, rewards, *(rng.random((2, steps)) < 0.01), 0.99, 0.95

    calls = [lambda function=each: (function(*given),) for each in (compute_value_targets, rllib.compute_value_targets)]
    yield Hooked(f"compute_value_targets, {steps} steps", *calls, timed=True)


def episodes_of(env):
    """New ones for each call: the connectors write into them."""
    rng = np.random.default_rng(0)
    return [episode(rng, env, *how) for how in [(50, True, False), (70, False, True), (30, False, False)]]


def episode(rng, env, steps, terminated, truncated):
    """As an env runner of RLlib's gathers it."""
    extra = {"action_logp": -np.ones(steps, np.float32), "action_dist_inputs": np.zeros((steps, 2), np.float32)}
    return SingleAgentEpisode(
        observation_space=env.observation_space,
        action_space=env.action_space,
        observations=list(rng.normal(size=(steps + 1, 4)).astype(np.float32)),
        actions=list(rng.integers(0, 2, steps)),
        rewards=list(rng.normal(size=steps)),
        terminated=terminated,
        truncated=truncated,
        len_lookback_buffer=0,
        extra_model_outputs={name: list(array) for name, array in extra.items()},
    )


def updated(env, **learner):
    def call():
        config = PPOConfig().environment("CartPole-v1").learners(**learner).debugging(seed=0)
        built = config.build_learner(env=env)
        connected = built._learner_connector(
            rl_module=built.module, batch={}, episodes=episodes_of(env), shared_data={}
        )
        batch = connected["default_policy"]
        built.update(episodes=episodes_of(env), minibatch_size=32, num_epochs=2)
        weights = built.get_state()["rl_module"]["default_policy"].values()
        return batch["advantages"], batch["value_targets"], *weights

    return call
