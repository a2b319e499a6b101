"""Random calls, drawn as the fuzzer draws them, have the bits of the backend numpy on a GPU."""

import pytest

import fastgae
from fastgae._interop.libraries import FUNCTIONS
from fuzz.accepted import faults
from fuzz.calls import Given
from fuzz.right import WEIGHTS, Independent, right_call

from .device import PLACES, check, dense

LARGEST = 200  # steps, because the interpreter takes its time
LENGTHS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 0)


def arguments_of(call):
    """Return the arguments as arrays and numbers that torch takes."""
    given = call.arguments.items()
    return dense({name: each.plain.astype(each.dtype) if isinstance(each, Given) else each for name, each in given})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_random_calls(name, monkeypatch):
    monkeypatch.setattr("fuzz.right.LENGTHS", LENGTHS)
    made = 0
    for seed in range(2 * WEIGHTS.get(name, 8)):
        call, _ = right_call(Independent(seed), (name,))
        if call.first.plain.size <= LARGEST and not faults(call):
            check(getattr(fastgae, name), {**arguments_of(call), **call.how}, PLACES[made % len(PLACES)])
            made += 1
    assert made > 4
