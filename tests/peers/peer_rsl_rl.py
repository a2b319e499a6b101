"""rsl_rl's ``PPO.compute_returns`` beside fastgae.compat.rsl_rl's."""

from types import SimpleNamespace

import torch

from fastgae.compat import rsl_rl

from .compare import Comparison, called, flags, normal
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


def theirs():
    """Return their method as a function of what it reads from the algorithm and its storage."""
    method = function("rsl-rl-lib", FILE, "compute_returns")

    def compute_returns(rewards, values, dones, last_values, gamma, lam, normalize_advantage=True):
        rollout = {"rewards": rewards, "values": values, "dones": dones, "returns": torch.zeros_like(rewards)}
        storage = SimpleNamespace(num_transitions_per_env=len(rewards), **rollout)
        settings = {"gamma": gamma, "lam": lam, "normalize_advantage_per_mini_batch": not normalize_advantage}
        method(SimpleNamespace(storage=storage, critic=Critic(), **settings), last_values)
        return storage.returns, storage.advantages

    return compute_returns


def comparisons(rng):
    for (steps, envs), gamma, lam in [((24, 4096), 0.99, 0.95), ((128, 8), 0.98, 0.9), ((1024, 1), 0.9, 0.95)]:
        values, rewards = normal(rng, steps + 1, envs, 1), normal(rng, steps, envs, 1)
        given = (rewards, values[:-1], flags(rng, 0.05, steps, envs, 1).byte(), values[-1], gamma, lam)
        size = f"{steps} × {envs}, gamma={gamma}, lam={lam}"
        yield called(f"compute_returns, {size}", theirs(), rsl_rl.compute_returns, *given, False)
        expected, got = (compute(*given)[1:] for compute in (theirs(), rsl_rl.compute_returns))
        yield Comparison(f"compute_returns, normalised advantages, {size}", expected, got, tolerance=1e-6)
