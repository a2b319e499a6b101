"""rl_games' ``A2CBase.discount_values`` and ``discount_values_masks`` beside fastgae.compat.rl_games'."""

from types import SimpleNamespace

import torch

from fastgae.compat import rl_games

from .compare import called, flags, normal
from .installed import function

PACKAGE = "rl-games==1.6.5"
FILE = "rl_games/common/a2c_common.py"


def theirs(name):
    """Return their method as a function of its arrays, gamma and tau."""
    method = function("rl-games", FILE, name, torch=torch)

    def discount(*arrays, gamma, tau):
        return method(SimpleNamespace(gamma=gamma, tau=tau, horizon_length=len(arrays[4])), *arrays)

    return discount


def rollouts(rng, *sizes):
    """Yield a name to show, the name of a method, and its arrays."""
    for steps, envs, heads in sizes:
        done, values = flags(rng, 0.05, steps + 1, envs).float(), normal(rng, steps + 1, envs, heads)
        arrays = (done[-1], values[-1], done[:-1], values[:-1], normal(rng, steps, envs, heads))
        masks = flags(rng, 0.9, steps, envs).float()
        for name, given in [("discount_values", arrays), ("discount_values_masks", (*arrays, masks))]:
            yield f"{name}, {steps} × {envs} × {heads}", name, given


def comparisons(rng):
    for shown, name, given in rollouts(rng, (16, 4096, 1), (128, 8, 2), (1024, 1, 1)):
        yield called(shown, theirs(name), getattr(rl_games, name), *given, gamma=0.99, tau=0.95)
