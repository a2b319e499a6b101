"""Right calls as the fuzzer draws them, with ordinary numbers: for tensors, for GPUs, and for gradients."""

import functools
from unittest import mock

import numpy as np

import fastgae
from fastgae._call import ROLES, Role
from fuzz.accepted import faults
from fuzz.calls import Given
from fuzz.right import FLAGS, NUMBERS
from fuzz.run import block

from .functions import parameters

LENGTHS = (2, 3, 5, 9, 17)  # of axes and of packed sequences
MOST = 200  # steps of all envs
DRAWN = 16  # calls for each argument of a function, of which few are kept


@functools.cache
def structures(name):
    """Draw calls of a function, and keep those that give an argument, a word, or a rank that none before gave."""
    kept, seen = [], set()

    def look(call):
        if faults(call) or not 0 < call.first.plain.size <= MOST:
            return
        new = {("rank", len(call.shape), call.time_axis > 0)}
        for each, given in call.arguments.items():
            sparse = each == "final_values" and given.plain.shape != call.shape
            kind = min(given.plain.ndim, 1) if isinstance(given, Given) else str(given).lower() * isinstance(given, str)
            new.add((each, sparse, kind))
        if not new <= seen:
            seen.update(new)
            kept.append(call)

    with mock.patch.multiple("fuzz.right", LENGTHS=LENGTHS, LONG=(33,)):
        assert not block(3, DRAWN * len(parameters(name)), (name,), look, smallest=False)
    return kept


def ordinary(call, dtype):
    """Return the arguments of a call with new numbers, all of one dtype, where it has numbers in arrays."""

    def made(name, given):
        rng, role = np.random.default_rng(list(name.encode())), ROLES[name]
        if role in NUMBERS:
            numbers = rng.normal(size=np.shape(getattr(given, "plain", given)))
            numbers = np.exp(numbers) if name in ("ratios", "std") else numbers
            return np.array(numbers, dtype) if isinstance(given, Given) else given if given is None else float(numbers)
        if role in (Role.COEFFICIENT, Role.FACTORS) and isinstance(given, Given | np.ndarray):
            return np.array(rng.random(np.shape(getattr(given, "plain", given))), dtype)
        if isinstance(given, Given):
            return np.array(given.plain != 0 if role in FLAGS else given.plain.astype(np.int64), order="C")
        return given.item() if isinstance(given, np.generic) else given

    return {name: made(name, given) for name, given in call.arguments.items()}


def drawn(name, dtype=np.float32):
    """Return calls of a public function in which each argument comes: the function, and the arguments."""
    return [(getattr(fastgae, name), ordinary(call, dtype)) for call in structures(name)]
