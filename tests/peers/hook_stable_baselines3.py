"""An algorithm of Stable-Baselines3 with its own rollout buffer, whose method install() replaces."""

import numpy as np
import torch
from stable_baselines3 import A2C

from fastgae.compat.stable_baselines3 import install

from .compare import Hooked


def hooks(rng):
    # A number of NumPy makes Stable-Baselines3 compute in float64, and gae_lambda only some of it.
    for gamma, gae_lambda in [(0.99, 0.95), (np.float64(0.99), 0.95), (0.99, np.float64(0.95))]:

        def trained(gamma=gamma, gae_lambda=gae_lambda):
            torch.set_num_threads(1)  # the networks are too small to share
            model = A2C("MlpPolicy", "CartPole-v1", 7e-4, 16, gamma, gae_lambda, seed=0, device="cpu").learn(256)
            return tuple(parameter.detach() for parameter in model.policy.parameters())

        yield Hooked(f"A2C with {gamma!r}, {gae_lambda!r}: the weights after 256 steps", trained, trained, install)
