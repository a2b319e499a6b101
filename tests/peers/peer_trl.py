"""TRL's ``PPOTrainer.compute_advantages`` beside fastgae.compat.trl's."""

from types import SimpleNamespace

import torch

from fastgae.compat import trl

from .compare import Comparison
from .installed import function

PACKAGE = "trl==0.11.4"


def theirs():
    """Their function, with their whitening."""
    names = {"torch": torch}
    for name in ("masked_mean", "masked_var", "masked_whiten"):
        names[name] = function("trl", "trl/core.py", name, **names)
    return function("trl", "trl/trainer/ppo_trainer.py", "compute_advantages", **names)


def comparisons(rng):
    compute_advantages = theirs()
    for (responses, tokens), gamma, lam in [((64, 1024), 1.0, 0.95), ((8, 100), 0.99, 0.9), ((3, 5), 1.0, 1.0)]:
        arrays = [torch.from_numpy(rng.normal(size=(responses, tokens))).float() for _ in range(2)]
        mask = torch.from_numpy(rng.random((responses, tokens)) < 0.8).long()
        for whiten_rewards in (False, True):
            settings = {"gamma": gamma, "lam": lam, "whiten_rewards": whiten_rewards}
            trainer = SimpleNamespace(config=SimpleNamespace(**settings))
            expected = compute_advantages(trainer, *arrays, mask)
            got = trl.compute_advantages(*arrays, mask, **settings)
            size = f"{responses} × {tokens}, gamma={gamma}, lam={lam}"
            if whiten_rewards:
                yield Comparison(f"compute_advantages, whiten_rewards, {size}", expected, got, tolerance=2e-6)
            else:
                yield Comparison(f"compute_advantages, values and returns, {size}", expected[::2], got[::2])
                yield Comparison(f"compute_advantages, advantages, {size}", expected[1:2], got[1:2], tolerance=1e-6)
