"""Algorithms of Stable-Baselines3 with fastgae's rollout buffers, or with buffers whose method install() replaces.

sb3-contrib's choose their buffers themselves. Each model is saved, and its copy trains on.
"""

import io

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium.wrappers import TimeAwareObservation
from stable_baselines3 import A2C, PPO
from stable_baselines3.common import buffers

from fastgae.compat import stable_baselines3 as compat

from .compare import Hooked

SETTINGS = {"n_steps": 64, "batch_size": 32, "n_epochs": 2}


def hooks(rng):
    # A number of NumPy makes Stable-Baselines3 compute in float64, and gae_lambda only some of it.
    for gamma, gae_lambda in [(0.99, 0.95), (np.float64(0.99), 0.95), (0.99, np.float64(0.95))]:
        call = trained(A2C, "MlpPolicy", cart_pole, n_steps=16, gamma=gamma, gae_lambda=gae_lambda)
        yield Hooked(f"A2C with {gamma!r}, {gae_lambda!r}", call, call, compat.install)

    forms = [("RolloutBuffer", "MlpPolicy", cart_pole), ("DictRolloutBuffer", "MultiInputPolicy", in_parts)]
    for algorithm, settings in (PPO, SETTINGS), (A2C, {}):
        for name, *form in forms:
            kinds = (getattr(module, name) for module in (buffers, compat))
            calls = [trained(algorithm, *form, rollout_buffer_class=kind, **settings) for kind in kinds]
            yield Hooked(f"{algorithm.__name__} with {name}", *calls)

    if stable_baselines3.__version__ == compat.LIBRARY.newest:  # which sb3-contrib needs
        import sb3_contrib
        from sb3_contrib.common.envs import InvalidActionEnvDiscrete

        for name, *form in [
            ("RecurrentPPO", "MlpLstmPolicy", cart_pole),
            ("MaskablePPO", "MlpPolicy", lambda: InvalidActionEnvDiscrete(dim=4)),
        ]:
            call = trained(getattr(sb3_contrib, name), *form, **SETTINGS)
            yield Hooked(name, call, call, compat.install)


def cart_pole():
    return gymnasium.make("CartPole-v1", max_episode_steps=30)  # so that episodes are truncated as well


def in_parts():
    return TimeAwareObservation(cart_pole(), flatten=False)


def trained(algorithm, policy, make_env, **settings):
    def call():
        torch.set_num_threads(1)  # the networks are too small to share
        model = algorithm(policy, make_env(), seed=3, device="cpu", **settings).learn(256)
        model.save(file := io.BytesIO())
        loaded = algorithm.load(file, model.get_env(), "cpu")
        assert type(loaded.rollout_buffer) is type(model.rollout_buffer)
        buffer = loaded.learn(256).rollout_buffer
        return *loaded.policy.state_dict().values(), buffer.advantages, buffer.returns

    return call
