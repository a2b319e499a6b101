"""``compute_gae`` as skrl's agents call it: by its name in their own module."""

import importlib

import torch

from fastgae.compat.skrl import AGENTS, RECURRENT_AGENTS, install

from .compare import Hooked


def hooks(rng):
    for name in (*AGENTS, *RECURRENT_AGENTS):
        agent = importlib.import_module(name)
        for steps, envs in [(128, 8), (24, 4096), (5, 1), (1, 5)]:
            rewards, values = torch.from_numpy(rng.normal(size=(2, steps + 1, envs, 1))).float()
            terminated, truncated = torch.from_numpy(rng.random((2, steps, envs, 1)) < 0.02)
            rollout = {"rewards": rewards[:-1], "terminated": terminated, "values": values[:-1]}
            if name in AGENTS:
                rollout |= {"truncated": truncated, "time_limit_bootstrap": True, "last_values": values[-1]}
            else:
                rollout |= {"next_values": values[-1]}

            def call(agent=agent, rollout=rollout):
                return agent.compute_gae(**rollout, discount_factor=0.99, lambda_coefficient=0.95)

            timed = envs > 1000 and name == "skrl.agents.torch.ppo.ppo"
            yield Hooked(f"{name}.compute_gae, {steps} × {envs}", call, call, install, 2e-6, timed)
