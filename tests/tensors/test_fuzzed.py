"""Random calls of the fuzzer with arrays of torch and JAX: the bits and the errors that NumPy's arrays get."""

import functools
import os

import hypothesis
import numpy as np
import pytest

import fastgae
from fastgae._interop import jax_xla
from fastgae._interop.libraries import WITHOUT_NUMBERS
from fuzz.accepted import faults
from fuzz.calls import Given, upper_halves
from fuzz.run import SETTINGS
from fuzz.strategy import calls
from support.cases import assert_same_bits
from support.functions import arrays_of, converted, split

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

CALLS = int(os.environ.get("FASTGAE_TEST_CALLS", "120"))
MOST = 3000  # elements of a call


def of_torch(given):
    tensor = torch.from_numpy((given.view(np.int16) if given.dtype.kind == "V" else given).copy())
    return tensor.view(torch.bfloat16) if given.dtype.kind == "V" else tensor


def of_jax(given):
    # jnp.asarray compiles a program for each shape.
    return jax.device_put(given.view(jax.numpy.bfloat16) if given.dtype.kind == "V" else given)


def in_numpy(call):
    """Return the arguments in plain memory and the byte order of this machine."""

    def made(given):
        if not isinstance(given, Given) or given.kind == "list":
            return given.plain.tolist() if isinstance(given, Given) else given
        plain = given.plain.astype(given.plain.dtype.newbyteorder("="), order="C")
        return upper_halves(plain).reshape(plain.shape) if given.kind == "bfloat16" else plain

    return {name: made(given) for name, given in call.arguments.items()}


def outcome(function, arguments):
    try:
        return arrays_of(function(**arguments)), ""
    except (TypeError, ValueError) as error:
        return (), f"{type(error).__name__}: {error}"


def can_be_converted(given):
    return isinstance(given, np.ndarray) and given.dtype.kind in "bcfiuV" and given.dtype != np.longdouble


def eager(convert, function, arguments):
    arrays = {name: convert(each) if can_be_converted(each) else each for name, each in arguments.items()}
    return outcome(function, arrays)


def jitted(function, arguments):
    arrays, others = split(converted(arguments, of_jax), jax.Array)
    return outcome(jax.jit(lambda **arrays: function(**arrays, **others)), arrays)


def lowered(function, arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax_xla, "is_ready", lambda: False)
        return jitted(function, arguments)


def flushed(given):
    """Return the numbers with 0 of the same sign for the denormal ones."""
    if given.dtype == bool:
        return given
    return np.where(np.abs(given) < np.finfo(given.dtype).tiny, np.copysign(given.dtype.type(0), given), given)


# name: the function that makes a call, the names of the functions to call, whether wrong calls are made, too
NAMES = tuple(WITHOUT_NUMBERS)
WAYS = {
    "torch": (functools.partial(eager, of_torch), NAMES, True),
    "jax": (functools.partial(eager, of_jax), NAMES, True),
    "jit": (jitted, NAMES, False),
    "lowered": (lowered, NAMES, False),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_bits_and_errors_of_numpy(way):
    compute, functions, wrong_too = WAYS[way]
    count = CALLS // 2 if way == "lowered" else CALLS  # these take longest, and test_jax_lowering has every argument

    @hypothesis.seed(int(os.environ.get("FASTGAE_TEST_SEED", "1")))
    @hypothesis.settings(SETTINGS, max_examples=count)
    @hypothesis.given(calls(functions))
    def compare(call):
        call.out = None
        if not isinstance(call.first, Given) or call.first.kind == "list" or call.first.plain.size > MOST:
            return
        arguments, function = in_numpy(call), getattr(fastgae, call.function)
        if not wrong_too and faults(call):
            return
        # XLA's own threads flush denormal numbers to 0; on the CPU, NumPy then does the same.
        torch.set_flush_denormal(way == "lowered")
        try:
            expected, refused = outcome(function, arguments)
        finally:
            torch.set_flush_denormal(False)
        with jax.enable_x64(True):
            got, error = compute(function, arguments)
        if refused:
            assert error.partition(":")[0] == refused.partition(":")[0], (refused, error)
            return
        assert not error
        for one, other in zip(got, expected, strict=True):
            # XLA flushes what it computes, but not what it only copies.
            assert_same_bits(*(map(flushed, (one, other)) if way == "lowered" else (one, other)))

    compare()
