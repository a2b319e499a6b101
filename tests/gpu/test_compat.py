"""fastgae.compat with tensors on the GPU, or under Triton's interpreter on the CPU: the same bits, computed there."""

import numpy as np
import pytest
import torch

from support.cases import assert_same_bits
from support.compat_calls import CALLS, TORCH_CALLS, prepared, tensor_of
from support.functions import arrays_of

from .device import DEVICE

EVERY = {**CALLS, **TORCH_CALLS}
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
@pytest.mark.parametrize("name", EVERY)
def test_the_bits_of_the_cpu(name, dtypes, device):
    function, given = prepared(EVERY[name], dtypes, tensor_of)
    expected = arrays_of(function(**given))
    device()
    _, given = prepared(EVERY[name], dtypes, on_the_device)
    for got, right in zip(arrays_of(function(**given)), expected, strict=True):
        assert got.device.type == DEVICE
        assert got.dtype == right.dtype
        if name in OWN_EXPONENTIAL or (DEVICE == "cuda" and name in OWN_SUMS):
            torch.testing.assert_close(got.cpu(), right)
        else:
            assert_same_bits(got.double().cpu().numpy(), right.double().numpy())


def test_coefficients_on_the_device(device):
    """torchrl keeps gamma and lambda in buffers, which lie where the agent does."""
    function, arguments, numbers = EVERY["torchrl gae"]
    call = function, {**arguments, "gamma": np.array(0.9), "lmbda": np.array(0.8)}, numbers
    expected = function(**prepared(call, convert=tensor_of)[1])
    device()
    for result, right in zip(function(**prepared(call, convert=on_the_device)[1]), expected, strict=True):
        assert_same_bits(result.cpu().numpy(), right.numpy())


def test_whitening_of_one_token_is_nan(device):
    """On the CPU it is an error. Here nobody looks at the mask."""
    device()
    function, given = prepared(EVERY["verl"], convert=on_the_device)
    advantages, _ = function(**{**given, "response_mask": 0 * given["response_mask"]})
    assert advantages.isnan().all()
