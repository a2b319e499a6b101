"""sample-factory's ``gae_advantages`` beside fastgae.compat.sample_factory's."""

import torch

from fastgae.compat import sample_factory

from .compare import Comparison
from .installed import function

PACKAGE = "sample-factory==2.1.1"
FILE = "sample_factory/algo/utils/rl_utils.py"


def comparisons(rng):
    discounted_sum = function("sample-factory", FILE, "calculate_discounted_sum_torch", torch=torch)
    gae_advantages = function("sample-factory", FILE, "gae_advantages", calculate_discounted_sum_torch=discounted_sum)
    for envs, steps in [(4096, 16), (8, 128), (1, 1024)]:
        arrays = (
            torch.from_numpy(rng.normal(size=(envs, steps))).float(),
            torch.from_numpy(rng.random((envs, steps)) < 0.05).float(),
            torch.from_numpy(rng.normal(size=(envs, steps + 1))).float(),
            torch.from_numpy(rng.random((envs, steps + 1)) < 0.9),
            0.99,
            0.95,
        )
        yield Comparison(
            f"gae_advantages, {envs} × {steps}",
            (gae_advantages(*arrays),),
            (sample_factory.gae_advantages(*arrays),),
        )
