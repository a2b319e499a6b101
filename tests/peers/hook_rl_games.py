"""The methods of rl_games' agents, which inherit them from A2CBase, and runs of an agent."""

import contextlib
import io
import tempfile
from types import SimpleNamespace

import numpy as np
from gymnasium.spaces import Box
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

from fastgae.compat.rl_games import install

from .compare import Hooked
from .envs import Envs
from .peer_rl_games import rollouts

NETWORKS = {"MLP": {}, "LSTM": {"rnn": {"name": "lstm", "units": 8, "layers": 1}}}
SPACES = {"observation_space": Box(-np.inf, np.inf, (3,), np.float32), "action_space": Box(-1.0, 1.0, (2,), np.float32)}
POLICY = {"mu_activation": "None", "sigma_activation": "None", "mu_init": {"name": "default"}, "fixed_sigma": True}
POLICY["sigma_init"] = {"name": "const_initializer", "val": 0.0}
RUN = {"name": "run", "env_name": "", "device": "cpu", "max_epochs": 3, "reward_shaper": {}, "env_info": SPACES}
SIZES = {"num_actors": 16, "horizon_length": 24, "seq_length": 4, "minibatch_size": 96, "mini_epochs": 2}
RATES = {"learning_rate": 1e-3, "lr_schedule": "constant", "gamma": 0.99, "tau": 0.95, "grad_norm": 1.0, "e_clip": 0.2}
TERMS = {"critic_coef": 2.0, "entropy_coef": 0.0, "bounds_loss_coef": 1e-4}
ON = ("normalize_advantage", "normalize_input", "normalize_value", "truncate_grads", "clip_value")
SETTINGS = {**RUN, **SIZES, **RATES, **TERMS, **dict.fromkeys(ON, True)}


class Stepped(Envs, IVecEnv):
    """As rl_games' agents want them."""

    def reset(self):
        return self.observed()


def hooks(rng):
    for shown, name, given in rollouts(rng, (128, 8, 2), (1, 1, 1), (32, 4096, 1)):
        steps, envs, _ = given[4].shape
        agent = SimpleNamespace(gamma=0.99, tau=0.95, horizon_length=steps)

        def call(name=name, given=given, agent=agent):
            return (getattr(A2CAgent, name)(agent, *given),)

        yield Hooked(f"A2CAgent.{shown}", call, call, install, timed=envs > 1000)

    for network, recurrent in NETWORKS.items():
        call = trained(recurrent)
        yield Hooked(f"A2CAgent.train with {network}: the weights after 3 epochs", call, call, install)


def trained(recurrent):
    def call():
        network = {"name": "actor_critic", "separate": False, "space": {"continuous": POLICY}, **recurrent}
        network["mlp"] = {"units": [8], "activation": "elu", "initializer": {"name": "default"}}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            runner = Runner()
            runner.load_config(
                {
                    "seed": 1,
                    "torch_threads": 1,
                    "algo": {"name": "a2c_continuous"},
                    "model": {"name": "continuous_a2c_logstd"},
                    "network": network,
                    "config": {**SETTINGS, "vec_env": Stepped(SETTINGS["num_actors"]), "train_dir": folder},
                }
            )
            agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
            agent.train()
            agent.writer.close()
        return tuple(agent.model.state_dict().values())

    return call
