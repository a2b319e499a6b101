"""OpenRLHF's ``get_advantages_and_returns`` beside fastgae.compat.openrlhf's."""

import torch

from fastgae.compat import openrlhf

from .compare import called, flags, normal
from .installed import function

PACKAGE = "openrlhf==0.11.2"
FILE = "openrlhf/trainer/ppo_utils/experience_maker.py"


def theirs():
    method = function("openrlhf", FILE, "get_advantages_and_returns", torch=torch)
    return lambda values, rewards, action_mask, gamma, lambd: method(None, values, rewards, action_mask, gamma, lambd)


def comparisons(rng):
    for responses, tokens in [(64, 1024), (8, 100), (3, 5)]:
        arrays = normal(rng, 2, responses, tokens)
        for mask in (None, flags(rng, 0.8, responses, tokens)):
            name = f"get_advantages_and_returns, {responses} × {tokens}{', no mask' * (mask is None)}"
            yield called(name, theirs(), openrlhf.get_advantages_and_returns, *arrays, mask, 0.99, 0.95)
