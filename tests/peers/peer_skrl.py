"""skrl's ``compute_gae`` beside fastgae.compat.skrl's."""

import torch

from fastgae.compat import skrl

from .compare import called, flags, normal
from .installed import function

PACKAGE = "skrl==2.1.1"
FILE = "skrl/agents/torch/ppo/ppo.py"


def theirs():
    return function("skrl", FILE, "compute_gae", torch=torch)


def comparisons(rng):
    for steps, envs in [(16, 4096), (128, 8), (1024, 1)]:
        values, rewards = normal(rng, steps + 1, envs, 1), normal(rng, steps, envs, 1)
        rollout = {"rewards": rewards, "values": values[:-1], "last_values": values[-1]}
        rollout |= {name: flags(rng, 0.02, steps, envs, 1) for name in ("terminated", "truncated")}
        for time_limit_bootstrap in (False, True):
            rollout["time_limit_bootstrap"] = time_limit_bootstrap
            name = f"compute_gae, {steps} × {envs}, time_limit_bootstrap={time_limit_bootstrap}"
            yield called(name, theirs(), skrl.compute_gae, **rollout, tolerance=2e-6)
