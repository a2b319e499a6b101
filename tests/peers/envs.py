"""Environments to train in, which observe and reward what a seed says."""

import torch


class Envs:
    """Any number of them, with 3 numbers to observe and 2 to choose; a fifth of the steps end an episode."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.random = torch.Generator().manual_seed(0)

    def observed(self):
        return torch.randn(self.num_envs, 3, generator=self.random)

    def step(self, actions):
        """Return what follows, the rewards, the flags, and which of these are limits."""
        dones, time_outs = torch.rand(2, self.num_envs, generator=self.random) < 0.1
        return self.observed(), actions.sum(-1), dones | time_outs, {"time_outs": time_outs}
