"""rl_games' ``A2CBase.discount_values`` and ``discount_values_masks`` beside fastgae.compat.rl_games'."""

from types import SimpleNamespace

import torch

from fastgae.compat import rl_games

from .compare import Comparison
from .installed import function

PACKAGE = "rl-games==1.6.5"
FILE = "rl_games/common/a2c_common.py"


def comparisons(rng):
    discount_values = function("rl-games", FILE, "discount_values", torch=torch)
    discount_values_masks = function("rl-games", FILE, "discount_values_masks", torch=torch)
    for steps, envs, heads in [(16, 4096, 1), (128, 8, 2), (1024, 1, 1)]:
        flags = torch.from_numpy(rng.random((steps + 1, envs)) < 0.05).float()
        values = torch.from_numpy(rng.normal(size=(steps + 1, envs, heads))).float()
        rewards = torch.from_numpy(rng.normal(size=(steps, envs, heads))).float()
        masks = torch.from_numpy(rng.random((steps, envs)) < 0.9).float()
        arrays = (flags[-1], values[-1], flags[:-1], values[:-1], rewards)
        agent = SimpleNamespace(gamma=0.99, tau=0.95, horizon_length=steps)
        settings = {"gamma": agent.gamma, "tau": agent.tau}
        size = f"{steps} × {envs} × {heads}"
        yield Comparison(
            f"discount_values, {size}",
            (discount_values(agent, *arrays),),
            (rl_games.discount_values(*arrays, **settings),),
        )
        yield Comparison(
            f"discount_values_masks, {size}",
            (discount_values_masks(agent, *arrays, masks),),
            (rl_games.discount_values_masks(*arrays, masks, **settings),),
        )
