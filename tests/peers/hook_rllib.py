"""RLlib: what PPO's learner makes of episodes, and the function below its GAE connector."""

from functools import partial
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.learner import general_advantage_estimation
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

from fastgae.compat import rllib

from .compare import Hooked


def hooks(rng):
    env = gym.make("CartPole-v1")
    # The hook stays in place in the learner's process, which is this one.
    put_back = partial(patch.object, general_advantage_estimation, "compute_value_targets", compute_value_targets)
    for network, lstm in [("MLP", False), ("LSTM", True)]:
        calls = [updated(env, lstm, **learner) for learner in ({}, {"learner_class": rllib.PPOTorchLearner})]
        yield Hooked(f"PPO's learner with {network}: its last batch, and its weights after 3 updates", *calls, put_back)

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


def updated(env, lstm, **learner):
    def call():
        torch.set_num_threads(1)  # the networks are too small to share
        model = {"use_lstm": lstm, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 20}
        config = PPOConfig().environment("CartPole-v1").learners(**learner).rl_module(model_config=model)
        built = config.debugging(seed=0).build_learner(env=env)
        for _ in range(3):
            built.update(episodes=episodes_of(env), minibatch_size=32, num_epochs=2)
        connected = built._learner_connector(
            rl_module=built.module, batch={}, episodes=episodes_of(env), shared_data={}
        )
        batch = connected["default_policy"]
        weights = built.get_state()["rl_module"]["default_policy"].values()
        return batch["advantages"], batch["value_targets"], *weights

    return call
