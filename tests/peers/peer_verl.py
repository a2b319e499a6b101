"""verl's ``compute_gae_advantage_return`` and groups beside fastgae.compat.verl's."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch

from fastgae.compat import verl

from .compare import Comparison
from .installed import function

PACKAGE = "verl==0.9.1"


def theirs(name):
    """Their function, with their whitening."""
    whitening = {"torch": torch}
    for each in ("masked_sum", "masked_mean", "masked_var", "masked_whiten"):
        whitening[each] = function("verl", "verl/utils/torch_functional.py", each, **whitening)
    names = {"torch": torch, "np": np, "defaultdict": defaultdict, "verl_F": SimpleNamespace(**whitening)}
    return function("verl", "verl/trainer/ppo/core_algos.py", name, **names)


def comparisons(rng):
    compute_gae_advantage_return = theirs("compute_gae_advantage_return")
    for (responses, tokens), gamma, lam in [((64, 1024), 1.0, 0.95), ((8, 100), 0.99, 0.9), ((3, 5), 1.0, 1.0)]:
        rewards, values = (torch.from_numpy(rng.normal(size=(responses, tokens))).float() for _ in range(2))
        mask = torch.from_numpy(rng.random((responses, tokens)) < 0.8).long()
        expected = compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        got = verl.compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        size = f"{responses} × {tokens}, gamma={gamma}, lam={lam}"
        yield Comparison(f"compute_gae_advantage_return, returns, {size}", expected[1:], got[1:])
        yield Comparison(f"compute_gae_advantage_return, advantages, {size}", expected[:1], got[:1], tolerance=1e-6)
    tokens, mask = (
        torch.from_numpy(rng.normal(size=(64, 50))).float(),
        torch.from_numpy(rng.random((64, 50)) < 0.8).long(),
    )
    index = np.array([f"prompt {number}" for number in rng.integers(0, 14, 64)], object)
    for name, settings in (
        ("compute_grpo_outcome_advantage", {}),
        ("compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
        ("compute_rloo_outcome_advantage", {}),
        ("compute_reinforce_plus_plus_baseline_outcome_advantage", {}),
    ):
        expected = theirs(name)(tokens, mask, index, **settings)
        got = getattr(verl, name)(tokens, mask, index, **settings)
        yield Comparison(", ".join([name, *settings]), expected, got, tolerance=1e-6)
