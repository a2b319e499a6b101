"""rsl_rl's algorithm, as a runner makes it from a configuration that names its class, and a run of it."""

import contextlib
import io

import torch
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from .compare import Hooked, flags, normal
from .envs import Envs

CLASSES = ("PPO", "fastgae.compat.rsl_rl:PPO")
NETWORKS = {"MLPModel": {}, "RNNModel": {"rnn_hidden_dim": 8}}


class Observed(Envs):
    """As rsl_rl's runner wants them."""

    num_actions, device, cfg, max_episode_length = 2, "cpu", {}, 20

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)

    def observed(self):
        return TensorDict({"policy": super().observed()}, [self.num_envs])

    get_observations = observed


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
        return OnPolicyRunner(Observed(envs), cfg)


def hooks(rng):
    for network in NETWORKS:
        calls = [trained(name, network) for name in CLASSES]
        yield Hooked(f"OnPolicyRunner.learn with {network}: the weights after 3 iterations", *calls)
    for steps, envs in [(128, 8), (24, 4096)]:
        values, rewards = normal(rng, 2, steps, envs, 1)
        rollout = {"values": values, "rewards": rewards, "dones": flags(rng, 0.05, steps, envs, 1)}
        for per_mini_batch in (False, True):
            setting = {"normalize_advantage_per_mini_batch": per_mini_batch}
            calls = [computed(runner(name, steps, envs, **setting), rollout) for name in CLASSES]
            name = f"PPO.compute_returns, {steps} × {envs}{', normalised' * (not per_mini_batch)}"
            yield Hooked(name, *calls, timed=envs > 1000 and not per_mini_batch)


def trained(class_name, network):
    def call():
        torch.set_num_threads(1)  # the networks are too small to share
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
