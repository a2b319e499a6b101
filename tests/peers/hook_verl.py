"""``compute_gae_advantage_return`` as verl's trainers call it: by its name in core_algos, and from the registry."""

import torch
from verl.trainer.ppo import core_algos

from fastgae.compat.verl import install

from .compare import Hooked, flags, normal


def hooks(rng):
    sizes = [(3, 5, 0.99, torch.float32), (64, 1024, 1.0, torch.bfloat16), (512, 8192, 1.0, torch.float32)]
    for responses, tokens, gamma, dtype in sizes:
        rewards, values = normal(rng, 2, responses, tokens)
        length = torch.from_numpy(rng.integers(tokens // 2, tokens + 1, size=(responses, 1)))
        mask = (torch.arange(tokens) < length) & flags(rng, 0.8, responses, tokens)
        given = rewards, values.to(dtype), mask.long(), gamma, 0.95

        def by_name(given=given):
            return core_algos.compute_gae_advantage_return(*given)

        def registered(given=given):
            return core_algos.get_adv_estimator_fn("gae")(*given)

        shown = f"{responses} × {tokens}, {dtype} values, gamma={gamma}"
        yield Hooked(f"compute_gae_advantage_return, {shown}", by_name, by_name, install, timed=tokens > 8000)
        if tokens == 5:
            yield Hooked(f"get_adv_estimator_fn, {shown}", registered, registered, install)
