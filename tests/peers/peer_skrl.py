"""skrl's ``compute_gae`` beside fastgae.compat.skrl's."""

import torch

from fastgae.compat import skrl

from .compare import Comparison
from .installed import function

PACKAGE = "skrl==2.1.1"
FILE = "skrl/agents/torch/ppo/ppo.py"


def comparisons(rng):
    compute_gae = function("skrl", FILE, "compute_gae", torch=torch)
    for steps, envs in [(16, 4096), (128, 8), (1024, 1)]:
        values = torch.from_numpy(rng.normal(size=(steps + 1, envs, 1))).float()
        for time_limit_bootstrap in (False, True):
            rollout = {
                "rewards": torch.from_numpy(rng.normal(size=(steps, envs, 1))).float(),
                "terminated": torch.from_numpy(rng.random((steps, envs, 1)) < 0.02),
                "truncated": torch.from_numpy(rng.random((steps, envs, 1)) < 0.02),
                "values": values[:-1],
                "last_values": values[-1],
                "time_limit_bootstrap": time_limit_bootstrap,
            }
            yield Comparison(
                f"compute_gae, {steps} × {envs}, time_limit_bootstrap={time_limit_bootstrap}",
                compute_gae(**rollout),
                skrl.compute_gae(**rollout),
                tolerance=2e-6,
            )
