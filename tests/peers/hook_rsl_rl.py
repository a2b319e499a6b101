"""rsl_rl's algorithm, as a runner makes it from a configuration that names its class, and a run of it."""

import contextlib
import io

import torch
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from .compare import Hooked

CLASSES = ("PPO", "fastgae.compat.rsl_rl:PPO")
NETWORKS = {"MLPModel": {}, "RNNModel": {"rnn_hidden_dim": 8}}


class Envs:
    """Which observe what they like, as long as it is said by a seed."""

    num_actions, device, cfg, max_episode_length = 2, "cpu", {}, 20

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.random = torch.Generator().manual_seed(0)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)

    def get_observations(self):
        return TensorDict({"policy": torch.randn(self.num_envs, 3, generator=self.random)}, [self.num_envs])

    def step(self, actions):
        dones, time_outs = torch.rand(2, self.num_envs, generator=self.random) < 0.1
        return self.get_observations(), actions.sum(-1), dones | time_outs, {"time_outs": time_outs}


def runner(class_name, steps, envs, network="MLPModel", **algorithm):
    network = {"class_name": network, "hidden_dims": [8], "activation": "elu", **NETWORKS[network]}
    cfg = {
        "algorithm": {"class_name": class_name, **algorithm},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution"}},
        "critic": network,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "num_steps_per_env": steps,
        "save_interval": 1,
    }
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        return OnPolicyRunner(Envs(envs), cfg)


def hooks(rng):
    for network in NETWORKS:
        calls = [trained(name, network) for name in CLASSES]
        yield Hooked(f"OnPolicyRunner.learn with {network}: the weights after 3 iterations", *calls)
    for steps, envs in [(128, 8), (24, 4096)]:
        values, rewards = torch.from_numpy(rng.normal(size=(2, steps, envs, 1))).float()
        rollout = {"values": values, "rewards": rewards, "dones": torch.from_numpy(rng.random(values.shape) < 0.05)}
        for per_mini_batch in (False, True):
            setting = {"normalize_advantage_per_mini_batch": per_mini_batch}
            calls = [computed(runner(name, steps, envs, **setting), rollout) for name in CLASSES]
            name = f"PPO.compute_returns, {steps} × {envs}{', normalised' * (not per_mini_batch)}"
            yield Hooked(name, *calls, timed=envs > 1000 and not per_mini_batch)


def trained(class_name, network):
    def call():
        made = runner(class_name, 24, 16, network)
        with contextlib.redirect_stdout(io.StringIO()):
            made.learn(3)
        networks = (made.alg.actor, made.alg.critic)
        return tuple(parameter.detach() for network in networks for parameter in network.parameters())

    return call


def computed(made, rollout):
    obs, storage = made.env.get_observations(), made.alg.storage
    for name, array in rollout.items():
        getattr(storage, name).copy_(array)

    def call():
        with torch.inference_mode():  # as the runner does
            made.alg.compute_returns(obs)
        return storage.returns, storage.advantages

    return call
