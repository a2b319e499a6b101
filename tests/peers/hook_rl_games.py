"""The methods of rl_games' agents, which inherit them from A2CBase."""

from types import SimpleNamespace

import torch
from rl_games.algos_torch.a2c_continuous import A2CAgent

from fastgae.compat.rl_games import install

from .compare import Hooked


def hooks(rng):
    for steps, envs, heads in [(128, 8, 2), (1, 1, 1), (32, 4096, 1)]:
        flags = torch.from_numpy(rng.random((steps + 1, envs)) < 0.05).float()
        values, rewards = torch.from_numpy(rng.normal(size=(2, steps + 1, envs, heads))).float()
        arrays = (flags[-1], values[-1], flags[:-1], values[:-1], rewards[:-1])
        mask = torch.from_numpy(rng.random((steps, envs)) < 0.9).float()
        agent = SimpleNamespace(gamma=0.99, tau=0.95, horizon_length=steps)

        for name, given in [("discount_values", arrays), ("discount_values_masks", (*arrays, mask))]:

            def call(name=name, given=given, agent=agent):
                return (getattr(A2CAgent, name)(agent, *given),)

            yield Hooked(f"A2CAgent.{name}, {steps} × {envs} × {heads}", call, call, install, timed=envs > 1000)
