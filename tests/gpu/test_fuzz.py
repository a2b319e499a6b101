"""Random calls, drawn as the fuzzer draws them, have the bits of the backend numpy on a GPU."""

import numpy as np
import pytest

import fastgae
from fastgae._interop import FUNCTIONS
from fuzz.calls import Given
from fuzz.choices import Choices
from fuzz.draw import random_call

from .device import PLACES, check

LARGEST = 800  # steps, because the interpreter takes its time
BATCHES = 8


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
        arguments["final_values"][arguments["truncated"] != 0] = final
    return arguments


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_calls(batch):
    made = 0
    for case in range(100 * batch, 100 * batch + 20):
        call = random_call(Choices(case), sorted(FUNCTIONS))
        if call.broken or call.first.plain.size > LARGEST:
            continue
        check(getattr(fastgae, call.function), {**arguments_of(call), **call.how}, PLACES[case % len(PLACES)])
        made += 1
    assert made > 8
