"""skrl's agents with ``install_final_obs``: V of the final observation, in training on real environments."""

import contextlib
import importlib

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("skrl")
import torch
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer

from fastgae.compat import skrl as compat

ENVS, STEPS, LIMIT, GAMMA = 3, 12, 5, 0.9
QUIET = {"headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
NO_FILES = {"experiment": {"write_interval": 0, "checkpoint_interval": 0}}


class Value(DeterministicMixin, Model):
    """V(s) = the first number of s, so that a reward shows which observation it was computed from."""

    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        DeterministicMixin.__init__(self)
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def compute(self, inputs, role):
        return inputs["observations"][:, :1] + self.bias, {}


class Policy(GaussianMixin, Model):
    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        GaussianMixin.__init__(self)
        self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role):
        return torch.zeros(len(inputs["observations"]), self.num_actions), {"log_std": self.log_std}


class Recorded(gymnasium.vector.VectorWrapper):
    """Keep what the environments return; terminate env 0 at its limit; give final observations as Isaac Lab does."""

    def __init__(self, envs, isaac):
        super().__init__(envs)
        self.isaac, self.rewards, self.terminated, self.truncated, self.final = isaac, [], [], [], []

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        terminated[0] = truncated[0]
        final = np.full_like(observations, np.nan)
        for n in np.flatnonzero(truncated & ("final_obs" in infos)):
            final[n] = infos["final_obs"][n]
        self.rewards.append(rewards)
        self.terminated.append(terminated)
        self.truncated.append(truncated)
        self.final.append(final[:, 0])
        if self.isaac and truncated.any():
            infos["final_obs"] = {"policy": torch.from_numpy(final).float()}
        return observations, rewards, terminated, truncated, infos


def trained(name, isaac, hook=contextlib.nullcontext):
    """Train for one rollout, and return the environments and the rewards that the agent stored."""
    how = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": AutoresetMode.SAME_STEP}}
    made = gymnasium.make_vec("Pendulum-v1", ENVS, **how, max_episode_steps=LIMIT)
    envs = Recorded(made, isaac)
    envs.reset(seed=0)
    env = wrap_env(envs, wrapper="gymnasium")
    module = importlib.import_module(f"skrl.agents.torch.{name}")
    agent = getattr(module, name.upper())(
        models={"policy": Policy(env), "value": Value(env)},
        memory=RandomMemory(memory_size=STEPS, num_envs=ENVS, device="cpu"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
        cfg={"rollouts": STEPS, "discount_factor": GAMMA, "time_limit_bootstrap": True, **NO_FILES},
    )
    torch.manual_seed(0)
    with hook():
        SequentialTrainer(env=env, agents=agent, cfg={"timesteps": STEPS, **QUIET}).train()
    return envs, agent.memory.get_tensor_by_name("rewards")[:, :, 0].numpy()


@pytest.mark.parametrize("isaac", [False, True], ids=["Gymnasium", "Isaac"])
@pytest.mark.parametrize("name", ["a2c", "ppo", "rpo", "trpo"])
def test_the_value_of_the_final_observation(name, isaac):
    envs, rewards = trained(name, isaac, compat.install_final_obs)
    truncated = np.array(envs.truncated)
    assert truncated.sum() == ENVS * (STEPS // LIMIT)
    bootstraps = truncated & ~np.array(envs.terminated)
    expected = np.array(envs.rewards) + GAMMA * np.where(bootstraps, envs.final, 0.0)
    np.testing.assert_allclose(rewards, expected, rtol=1e-5, atol=1e-5)

    _, theirs = trained(name, isaac)
    assert not np.allclose(theirs[truncated], expected[truncated], atol=1e-3)
