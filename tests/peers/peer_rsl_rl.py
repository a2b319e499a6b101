"""rsl_rl's ``PPO.compute_returns`` beside fastgae.compat.rsl_rl's."""

from types import SimpleNamespace

import torch

from fastgae.compat import rsl_rl

from .compare import Comparison
from .installed import function

PACKAGE = "rsl-rl-lib==5.5.1"
FILE = "rsl_rl/algorithms/ppo.py"


class Critic:
    """Whose observations are values."""

    def __call__(self, obs):
        return obs

    def get_hidden_state(self):
        return None

    def reset(self, hidden_state=None):
        pass


def comparisons(rng):
    compute_returns = function("rsl-rl-lib", FILE, "compute_returns")
    for (steps, envs), gamma, lam in [((24, 4096), 0.99, 0.95), ((128, 8), 0.98, 0.9), ((1024, 1), 0.9, 0.95)]:
        values = torch.from_numpy(rng.normal(size=(steps + 1, envs, 1))).float()
        storage = SimpleNamespace(
            num_transitions_per_env=steps,
            rewards=torch.from_numpy(rng.normal(size=(steps, envs, 1))).float(),
            values=values[:-1],
            dones=torch.from_numpy(rng.random((steps, envs, 1)) < 0.05).byte(),
            returns=torch.zeros(steps, envs, 1),
        )
        for normalized in (False, True):
            algorithm = SimpleNamespace(
                storage=storage,
                critic=Critic(),
                gamma=gamma,
                lam=lam,
                normalize_advantage_per_mini_batch=not normalized,
            )
            compute_returns(algorithm, values[-1])
            returns, advantages = rsl_rl.compute_returns(
                storage.rewards, storage.values, storage.dones, values[-1], gamma, lam, normalized
            )
            size = f"{steps} × {envs}, gamma={gamma}, lam={lam}"
            if normalized:
                name, tolerance = f"compute_returns, normalised advantages, {size}", 1e-6
                yield Comparison(name, (storage.advantages,), (advantages,), tolerance)
            else:
                theirs, ours = (storage.returns.clone(), storage.advantages), (returns, advantages)
                yield Comparison(f"compute_returns, {size}", theirs, ours)
