"""OpenRLHF's ``get_advantages_and_returns`` beside fastgae.compat.openrlhf's."""

import torch

from fastgae.compat import openrlhf

from .compare import Comparison
from .installed import function

PACKAGE = "openrlhf==0.11.2"
FILE = "openrlhf/trainer/ppo_utils/experience_maker.py"


def comparisons(rng):
    get_advantages_and_returns = function("openrlhf", FILE, "get_advantages_and_returns", torch=torch)
    for responses, tokens in [(64, 1024), (8, 100), (3, 5)]:
        arrays = [torch.from_numpy(rng.normal(size=(responses, tokens))).float() for _ in range(2)]
        for mask in (None, torch.from_numpy(rng.random((responses, tokens)) < 0.8)):
            yield Comparison(
                f"get_advantages_and_returns, {responses} × {tokens}{', no mask' if mask is None else ''}",
                get_advantages_and_returns(None, *arrays, mask, 0.99, 0.95),
                openrlhf.get_advantages_and_returns(*arrays, mask, 0.99, 0.95),
            )
