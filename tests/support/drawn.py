"""Right calls as the fuzzer draws them, with ordinary numbers: for tensors, for GPUs, and for gradients."""

import functools
from unittest import mock

import numpy as np

import fastgae
from fastgae._call import ROLES, Role
from fuzz.accepted import faults
from fuzz.calls import Given
from fuzz.right import FLAGS, NUMBERS, Independent, right_call

LENGTHS = (2, 3, 5, 9, 17)  # of axes and of packed sequences
MOST = 200  # steps of all envs
DRAWN = 100  # calls of a function, of which few are kept


def given_in(call):
    """Return what a call gives: its rank, and each argument that matters, with its word or the kind of its shape.

    A number or flag of 0 does not, nor do flags that are all set.
    """
    given = {("rank", len(call.shape), call.time_axis > 0)}
    for name, each in call.arguments.items():
        sparse = name == "final_values" and each.plain.shape != call.shape
        kind = min(each.plain.ndim, 1) if isinstance(each, Given) else str(each).lower() * isinstance(each, str)
        plain = np.asarray(each.plain if isinstance(each, Given) else each)
        all_set = ROLES[name] in FLAGS and plain.size > 1 and plain.all()
        if np.count_nonzero(plain) and not all_set:
            given.add((name, sparse, kind))
    return given


@functools.cache
def right_calls(name):
    """Draw right calls of a function, of some steps each."""
    with mock.patch.multiple("fuzz.right", LENGTHS=LENGTHS, LONG=(33,)):
        made = [right_call(Independent(seed), (name,))[0] for seed in range(DRAWN)]
    return [
        each for each in made if each.shape[each.time_axis] > 2 and each.first.plain.size <= MOST and not faults(each)
    ]


@functools.cache
def structures(name, fits=None):
    """Return the fewest of these calls that give whatever any of them gives, those that give most first."""
    made = [(call, given_in(call)) for call in right_calls(name)]
    if fits:
        made = [each for each in made if fits(getattr(fastgae, name), ordinary(each[0], np.float32))]
    kept, missing = [], set().union(*(given for _, given in made))
    while missing:
        call, given = max(made, key=lambda each: len(each[1] & missing))
        kept.append(call)
        missing -= given
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


def drawn(name, dtype=np.float32, fits=None):
    """Return calls of a public function in which each argument comes: the function, and the arguments.

    The first three of about eight have most of what all have. ``fits``: take only calls for which it is true.
    """
    return [(getattr(fastgae, name), ordinary(call, dtype)) for call in structures(name, fits)]
