"""TRL's ``PPOTrainer.compute_advantages`` beside fastgae.compat.trl's."""

from types import SimpleNamespace

import torch

from fastgae.compat import trl

from .compare import Comparison, flags, normal
from .installed import function

PACKAGE = "trl==0.11.4"


def theirs():
    """Return their method, with their whitening, as a function of what it reads from the trainer."""
    names = {"torch": torch}
    for name in ("masked_mean", "masked_var", "masked_whiten"):
        names[name] = function("trl", "trl/core.py", name, **names)
    method = function("trl", "trl/trainer/ppo_trainer.py", "compute_advantages", **names)

    def compute_advantages(values, rewards, mask, gamma, lam, whiten_rewards=False):
        config = SimpleNamespace(gamma=gamma, lam=lam, whiten_rewards=whiten_rewards)
        return method(SimpleNamespace(config=config), values, rewards, mask)

    return compute_advantages


def comparisons(rng):
    compute_advantages = theirs()
    for (responses, tokens), gamma, lam in [((64, 1024), 1.0, 0.95), ((8, 100), 0.99, 0.9), ((3, 5), 1.0, 1.0)]:
        arrays, mask = normal(rng, 2, responses, tokens), flags(rng, 0.8, responses, tokens).long()
        for whiten_rewards in (False, True):
            settings = {"gamma": gamma, "lam": lam, "whiten_rewards": whiten_rewards}
            expected = compute_advantages(*arrays, mask, **settings)
            got = trl.compute_advantages(*arrays, mask, **settings)
            size = f"{responses} × {tokens}, gamma={gamma}, lam={lam}"
            if whiten_rewards:
                yield Comparison(f"compute_advantages, whiten_rewards, {size}", expected, got, tolerance=2e-6)
            else:
                yield Comparison(f"compute_advantages, values and returns, {size}", expected[::2], got[::2])
                yield Comparison(f"compute_advantages, advantages, {size}", expected[1:2], got[1:2], tolerance=1e-6)
