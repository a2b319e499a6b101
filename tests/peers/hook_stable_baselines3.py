"""An algorithm of Stable-Baselines3 with its own rollout buffer, whose method install() replaces."""

import torch
from stable_baselines3 import A2C

from fastgae.compat.stable_baselines3 import install

from .compare import Hooked


def hooks(rng):
    def trained():
        torch.set_num_threads(1)  # the networks are too small to share
        model = A2C("MlpPolicy", "CartPole-v1", n_steps=16, gae_lambda=0.95, seed=0, device="cpu").learn(256)
        return tuple(parameter.detach() for parameter in model.policy.parameters())

    yield Hooked("A2C: the weights after 256 steps", trained, trained, install)
