"""The class of labml_nn.rl.ppo.gae, on what its experiment collects: float32 numbers and bool flags."""

import importlib.util
from importlib.metadata import distribution

import numpy as np

from fastgae.compat.labml import GAE

from .compare import called

PACKAGE = "labml-nn==0.5.1"


def theirs():
    """Their class, by its file: the package around it imports all of labml."""
    file = distribution("labml-nn").locate_file("labml_nn/rl/ppo/gae.py")
    spec = importlib.util.spec_from_file_location("labml_gae", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.GAE


def comparisons(rng):
    shape = n_workers, worker_steps = 8, 128
    rewards = rng.normal(size=shape).astype(np.float32)
    values = rng.normal(size=(n_workers, worker_steps + 1)).astype(np.float32)
    pair = [each(n_workers, worker_steps, 0.99, 0.95) for each in (theirs(), GAE)]
    for flags in (bool, np.float32):
        done = (rng.random(shape) < 0.1).astype(flags)
        yield called(f"GAE, {flags.__name__} flags", *pair, done, rewards, values)
