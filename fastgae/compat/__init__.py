"""Compute the functions of other libraries with fastgae: one module per library, with its signatures and exact results.

A function takes and returns tensors or JAX arrays if the library's own function does, also in code that
``torch.compile``, ``torch.func``, ``jax.jit``, ``jax.vmap`` or ``jax.grad`` traces. Tensors on a GPU stay there. The
exceptions are the functions of groups in ``verl`` and ``trl``, which need the numbers themselves, on the CPU. Results
have no gradients, except those of ``rlax`` in JAX. Unless a docstring says otherwise, their dtype is the one to which
torch, JAX or NumPy promotes the given numbers, or its default float dtype if all of them are integers; NumPy's float16
gives float32. See docs/tensors.md and docs/gpu.md. A TypeError or ValueError names an argument that is missing, or of a
wrong type or shape. Half of the modules also have a hook that makes the library call fastgae: a function ``install()``,
or a subclass with the name of the library's class. Only the hook imports the library.

``install()`` returns a ``contextlib.ExitStack``, whose ``close()``, or the end of ``with install(): ...``, puts the
library's own functions back; after several calls, the last ``close()`` does. ``install()`` raises a RuntimeError, and
replaces nothing, if the hook was not tested with the installed version, or if the library's functions have other
parameters. So does the first use of a subclass.

Where a docstring says "the same bits", two things may still differ, because fastgae leaves a term out where most
libraries multiply it by 0: NaN and infinity there have no effect, and a zero may have the other sign.
"""

import importlib
import typing

from fastgae._support.misnamed import no_name

if typing.TYPE_CHECKING:
    from fastgae.compat import brax as brax
    from fastgae.compat import cleanrl as cleanrl
    from fastgae.compat import envpool as envpool
    from fastgae.compat import gymnasium as gymnasium
    from fastgae.compat import labml as labml
    from fastgae.compat import openrlhf as openrlhf
    from fastgae.compat import paper2code as paper2code
    from fastgae.compat import pufferlib as pufferlib
    from fastgae.compat import rl_games as rl_games
    from fastgae.compat import rlax as rlax
    from fastgae.compat import rllib as rllib
    from fastgae.compat import rsl_rl as rsl_rl
    from fastgae.compat import sample_factory as sample_factory
    from fastgae.compat import skrl as skrl
    from fastgae.compat import spinningup as spinningup
    from fastgae.compat import stable_baselines3 as stable_baselines3
    from fastgae.compat import tianshou as tianshou
    from fastgae.compat import torchrl as torchrl
    from fastgae.compat import trl as trl
    from fastgae.compat import verl as verl

__all__ = [
    "brax",
    "cleanrl",
    "envpool",
    "gymnasium",
    "labml",
    "openrlhf",
    "paper2code",
    "pufferlib",
    "rl_games",
    "rlax",
    "rllib",
    "rsl_rl",
    "sample_factory",
    "skrl",
    "spinningup",
    "stable_baselines3",
    "tianshou",
    "torchrl",
    "trl",
    "verl",
]

if not typing.TYPE_CHECKING:  # otherwise a type checker would accept every name, also a misspelled one

    def __getattr__(name: str) -> typing.Any:
        if name not in __all__:
            raise no_name(__name__, name, __all__)
        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
