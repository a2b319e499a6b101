"""sample-factory's ``gae_advantages`` beside fastgae.compat.sample_factory's."""

import torch

from fastgae.compat import sample_factory

from .compare import called, flags, normal
from .installed import function

PACKAGE = "sample-factory==2.1.1"
FILE = "sample_factory/algo/utils/rl_utils.py"


def theirs():
    discounted_sum = function("sample-factory", FILE, "calculate_discounted_sum_torch", torch=torch)
    return function("sample-factory", FILE, "gae_advantages", calculate_discounted_sum_torch=discounted_sum)


def comparisons(rng):
    for envs, steps in [(4096, 16), (8, 128), (1, 1024)]:
        rewards, dones, values = normal(rng, envs, steps), flags(rng, 0.05, envs, steps), normal(rng, envs, steps + 1)
        given = (rewards, dones.float(), values, flags(rng, 0.9, envs, steps + 1), 0.99, 0.95)
        yield called(f"gae_advantages, {envs} × {steps}", theirs(), sample_factory.gae_advantages, *given)
