"""verl's ``compute_gae_advantage_return`` and groups beside fastgae.compat.verl's."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch

from fastgae.compat import verl

from .compare import Comparison, called, flags, normal
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
        given = (*normal(rng, 2, responses, tokens), flags(rng, 0.8, responses, tokens).long(), gamma, lam)
        expected, got = compute_gae_advantage_return(*given), verl.compute_gae_advantage_return(*given)
        size = f"{responses} × {tokens}, gamma={gamma}, lam={lam}"
        yield Comparison(f"compute_gae_advantage_return, returns, {size}", expected[1:], got[1:])
        yield Comparison(f"compute_gae_advantage_return, advantages, {size}", expected[:1], got[:1], tolerance=1e-6)
    tokens, mask = normal(rng, 64, 50), flags(rng, 0.8, 64, 50).long()
    # Some prompts have one answer.
    index = np.array([f"prompt {number}" for number in rng.integers(0, 30, 64)], object)
    for name, settings in (
        ("compute_grpo_outcome_advantage", {}),
        ("compute_grpo_outcome_advantage", {"epsilon": 0.5}),
        ("compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
        ("compute_rloo_outcome_advantage", {}),
        ("compute_reinforce_plus_plus_baseline_outcome_advantage", {}),
    ):
        functions = theirs(name), getattr(verl, name)
        yield called(", ".join([name, *settings]), *functions, tokens, mask, index, **settings, tolerance=1e-6)
