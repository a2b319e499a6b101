"""rsl_rl's algorithm, made from a runner's configuration that names its class."""

import contextlib
import io
from types import SimpleNamespace

import torch
from rsl_rl.algorithms import PPO
from tensordict import TensorDict

from compare import Hooked


def algorithm(class_name, steps, envs, normalize_per_mini_batch):
    torch.manual_seed(0)
    obs = TensorDict({"policy": torch.zeros(envs, 3)}, [envs])
    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    cfg = {
        "algorithm": {"class_name": class_name, "normalize_advantage_per_mini_batch": normalize_per_mini_batch},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution"}},
        "critic": dict(network),
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "num_steps_per_env": steps,
        "multi_gpu": None,
    }
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        return PPO.construct_algorithm(obs, SimpleNamespace(num_envs=envs, num_actions=2), cfg, "cpu")


def hooks(rng):
    for steps, envs in [(128, 8), (24, 4096)]:
        values, rewards = torch.from_numpy(rng.normal(size=(2, steps, envs, 1))).float()
        dones = torch.from_numpy(rng.random((steps, envs, 1)) < 0.05).byte()
        obs = TensorDict({"policy": torch.from_numpy(rng.normal(size=(envs, 3))).float()}, [envs])
        for per_mini_batch in (False, True):
            calls = []
            for class_name in ("PPO", "fastgae.compat.rsl_rl:PPO"):
                ppo = algorithm(class_name, steps, envs, per_mini_batch)
                for array, given in zip(("values", "rewards", "dones"), (values, rewards, dones), strict=True):
                    getattr(ppo.storage, array).copy_(given)

                def call(ppo=ppo, obs=obs):
                    with torch.inference_mode():  # as the runner does
                        ppo.compute_returns(obs)
                    return ppo.storage.returns, ppo.storage.advantages

                calls.append(call)
            name = f"PPO.compute_returns, {steps} × {envs}{', normalised' * (not per_mini_batch)}"
            yield Hooked(name, *calls, timed=envs > 1000 and not per_mini_batch)
