"""``compute_puff_advantage`` as PufferLib's trainer calls it: by its name in ``pufferl``."""

import signal

from fastgae.compat.pufferlib import install

from .compare import Hooked
from .peer_pufferlib import compiled_kernel, filled, rollout

interrupt = signal.getsignal(signal.SIGINT)
from pufferlib import pufferl  # noqa: E402

signal.signal(signal.SIGINT, interrupt)  # PufferLib's handler ends the process with status 0


def hooks(rng):
    compiled_kernel()
    pufferl._C_AVAILABLE = True
    tensors = rollout(rng, 512, 64)

    def call():
        return filled(pufferl.compute_puff_advantage, tensors, 1.0, 1.0)

    yield Hooked("pufferl.compute_puff_advantage, 512 × 64", call, call, install)
