"""Random calls, drawn as the fuzzer draws them, have the bits of the backend numpy on a GPU."""

import numpy as np
import pytest

import fastgae
from fastgae._interop import FUNCTIONS
from fuzz.accepted import faults
from fuzz.calls import Given
from fuzz.run import block

from .device import PLACES, check

LARGEST = 200  # steps, because the interpreter takes its time
BATCHES = 3


def arguments_of(call):
    """Return the arguments as arrays and numbers that torch takes; final values are dense."""
    arguments = {
        name: given.plain.astype(given.dtype) if isinstance(given, Given) else given
        for name, given in call.arguments.items()
    }
    first = call.first.plain
    final = arguments.get("final_values")
    if np.ndim(final) and final.shape != first.shape:
        arguments["final_values"] = np.zeros(first.shape, final.dtype)
        arguments["final_values"][call.plain("truncated") != 0] = final
    return arguments


@pytest.mark.usefixtures("usual_turns")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_calls(batch):
    made = []

    def make(call):
        if not faults(call) and call.first.plain.size <= LARGEST:
            place = PLACES[len(made) % len(PLACES)]
            made.append(check(getattr(fastgae, call.function), {**arguments_of(call), **call.how}, place))

    block(batch, 40, sorted(FUNCTIONS), make)
    assert len(made) > 8
