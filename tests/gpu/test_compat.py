"""fastgae.compat with tensors on the GPU, or under Triton's interpreter on the CPU: the same bits, computed there."""

import numpy as np
import pytest

from support.compat_calls import IN_TORCH, assert_same_tensors, prepared, tensor_of
from support.functions import arrays_of

from .device import DEVICE

# A GPU has exponentials of its own, and the interpreter those of NumPy or torch.
OWN_EXPONENTIAL = {"rlax retrace_continuous", "torchrl vtrace"}
# Expectations over actions are sums of torch, which a GPU adds up in an order of its own.
OWN_SUMS = {"rlax off-policy returns of action values", "rlax retrace"}


def on_the_device(*array):
    return tensor_of(*array).to(DEVICE)


@pytest.fixture
def device(monkeypatch):
    """Let every tensor be computed where it is, also under the interpreter. Before that, the CPU computes."""
    return lambda: monkeypatch.setattr("fastgae._interop.torch.on_device", lambda tensor: True)


@pytest.mark.parametrize("dtypes", [["float64"], ["bfloat16", "float32"]], ids="-".join)
@pytest.mark.parametrize("name", IN_TORCH)
def test_the_bits_of_the_cpu(name, dtypes, device):
    function, given = prepared(IN_TORCH[name], dtypes, tensor_of)
    expected = function(**given)
    device()
    _, given = prepared(IN_TORCH[name], dtypes, on_the_device)
    results = arrays_of(function(**given))
    assert {each.device.type for each in results} == {DEVICE}
    assert_same_tensors(name, results, expected, OWN_EXPONENTIAL | (OWN_SUMS if DEVICE == "cuda" else set()))


def test_coefficients_on_the_device(device):
    """torchrl keeps gamma and lambda in buffers, which lie where the agent does."""
    function, arguments, numbers = IN_TORCH["torchrl gae"]
    call = function, {**arguments, "gamma": np.array(0.9), "lmbda": np.array(0.8)}, numbers
    expected = function(**prepared(call, convert=tensor_of)[1])
    device()
    assert_same_tensors("torchrl gae", function(**prepared(call, convert=on_the_device)[1]), expected)


def test_whitening_of_one_token_is_nan(device):
    """On the CPU it is an error. Here nobody looks at the mask."""
    device()
    function, given = prepared(IN_TORCH["verl"], convert=on_the_device)
    advantages, _ = function(**{**given, "response_mask": 0 * given["response_mask"]})
    assert advantages.isnan().all()
