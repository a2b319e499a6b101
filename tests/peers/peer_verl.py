"""verl's ``compute_gae_advantage_return`` beside fastgae.compat.verl's."""

from functools import partial
from importlib.metadata import version
from types import SimpleNamespace

import torch

from fastgae.compat import verl

from .compare import Comparison
from .installed import function

PACKAGE = "verl==0.9.1"
VERSION = partial(version, "verl")


def theirs():
    """Their function, with their whitening."""
    whitening = {"torch": torch}
    for name in ("masked_sum", "masked_mean", "masked_var", "masked_whiten"):
        whitening[name] = function("verl", "verl/utils/torch_functional.py", name, **whitening)
    names = {"torch": torch, "verl_F": SimpleNamespace(**whitening)}
    return function("verl", "verl/trainer/ppo/core_algos.py", "compute_gae_advantage_return", **names)


def comparisons(rng):
    compute_gae_advantage_return = theirs()
    for (responses, tokens), gamma, lam in [((64, 1024), 1.0, 0.95), ((8, 100), 0.99, 0.9), ((3, 5), 1.0, 1.0)]:
        rewards, values = (torch.from_numpy(rng.normal(size=(responses, tokens))).float() for _ in range(2))
        mask = torch.from_numpy(rng.random((responses, tokens)) < 0.8).long()
        expected = compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        got = verl.compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        size = f"{responses} × {tokens}, gamma={gamma}, lam={lam}"
        yield Comparison(f"compute_gae_advantage_return, returns, {size}", expected[1:], got[1:])
        yield Comparison(f"compute_gae_advantage_return, advantages, {size}", expected[:1], got[:1], tolerance=1e-6)
