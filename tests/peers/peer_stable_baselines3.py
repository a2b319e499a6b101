"""RolloutBuffer as PPO and A2C fill it."""

import copy

import numpy as np

from fastgae.compat.stable_baselines3 import compute_returns_and_advantage

from .compare import Comparison

PACKAGE = "stable-baselines3==2.9.2"


def comparisons(rng):
    import torch
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    for gamma, gae_lambda in ((0.99, 0.95), (1.0, 1.0)):
        space, shape = Box(-1.0, 1.0, (1,)), (64, 6)
        theirs = RolloutBuffer(shape[0], space, space, "cpu", gae_lambda, gamma, shape[1])
        theirs.rewards[:], theirs.values[:] = rng.normal(size=(2, *shape))
        theirs.episode_starts[:] = rng.random(shape) < 0.2
        ours = copy.deepcopy(theirs)
        last = torch.from_numpy(rng.normal(size=(shape[1], 1)).astype(np.float32)), rng.random(shape[1]) < 0.5
        theirs.compute_returns_and_advantage(*last)
        compute_returns_and_advantage(ours, *last)
        yield Comparison(
            f"RolloutBuffer.compute_returns_and_advantage, gamma {gamma}",
            (theirs.advantages, theirs.returns),
            (ours.advantages, ours.returns),
        )
