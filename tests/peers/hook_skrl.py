"""``compute_gae`` as skrl's agents call it: by its name in their own module."""

import importlib
from inspect import signature

from fastgae.compat.skrl import AGENTS, AMP, install

from .compare import Hooked, flags, normal


def hooks(rng):
    for name in (*AGENTS, AMP):
        agent = importlib.import_module(name)
        taken = signature(agent.compute_gae).parameters
        for steps, envs in [(128, 8), (24, 4096), (5, 1), (1, 5)]:
            values = normal(rng, steps + 1, envs, 1)
            given = {name: flags(rng, 0.02, steps, envs, 1) for name in ("terminated", "truncated")}
            given |= {"rewards": normal(rng, steps, envs, 1), "values": values[:-1], "last_values": values[-1]}
            given["next_values"] = values[1:] if name == AMP else values[-1]  # V' of every step in AMP of version 2.0
            given["time_limit_bootstrap"] = True
            rollout = {key: array for key, array in given.items() if key in taken}

            def call(agent=agent, rollout=rollout):
                return agent.compute_gae(**rollout, discount_factor=0.99, lambda_coefficient=0.95)

            timed = envs > 1000 and name == "skrl.agents.torch.ppo.ppo"
            yield Hooked(f"{name}.compute_gae, {steps} × {envs}", call, call, install, 2e-6, timed)
