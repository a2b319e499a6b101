"""PufferLib's kernel for the CPU beside fastgae.compat.pufferlib's function."""

from functools import cache
from importlib.metadata import distribution

import torch
from torch.utils import cpp_extension

from fastgae.compat import pufferlib

from .compare import Comparison, flags, normal
from .installed import function

PACKAGE = "pufferlib-core==3.0.23"


@cache
def compiled_kernel():
    """Compile ``torch.ops.pufferlib.compute_puff_advantage``: the module in the wheel needs CUDA and an older torch."""
    source = distribution("pufferlib-core").locate_file("pufferlib/extensions/pufferlib.cpp")
    cpp_extension.load("pufferlib_on_a_cpu", [str(source)], is_python_module=False)


def rollout(rng, *size):
    values, rewards, logratio = normal(rng, 3, *size)
    return values, rewards, flags(rng, 0.1, *size).float(), logratio.exp()


def filled(compute, tensors, *clips):
    """Return the advantages that the function writes into a new tensor."""
    return (compute(*tensors, torch.zeros_like(tensors[0]), 0.99, 0.95, *clips),)


def comparisons(rng):
    compiled_kernel()
    names = {"torch": torch, "_C_AVAILABLE": True, "ADVANTAGE_CUDA": False}
    theirs = function("pufferlib-core", "pufferlib/pufferl.py", "compute_puff_advantage", **names)
    for segments, horizon, *clips in [(512, 64, 1.0, 1.0), (8, 128, 1.5, 0.7), (3, 1, 1.0, 1.0)]:
        tensors = rollout(rng, segments, horizon)
        results = (filled(each, tensors, *clips) for each in (theirs, pufferlib.compute_puff_advantage))
        yield Comparison(f"compute_puff_advantage, {segments} × {horizon}, clips {clips}", *results)
