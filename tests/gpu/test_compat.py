"""fastgae.compat with tensors on the GPU, or under Triton's interpreter on the CPU: the same bits, computed there."""

import numpy as np
import pytest
import torch

from support.cases import assert_same_bits
from support.compat_calls import CALLS, TORCH_CALLS, arrays_of, given_as, tensor_of

from .device import DEVICE

EVERY = {**CALLS, **TORCH_CALLS}
# A GPU has exponentials of its own, and the interpreter those of NumPy or torch.
OWN_EXPONENTIAL = {"rlax retrace_continuous", "torchrl vtrace"}


@pytest.mark.parametrize("dtypes", [["float32"], ["float64"], ["bfloat16", "float32"]], ids="-".join)
@pytest.mark.parametrize("name", EVERY)
def test_the_bits_of_the_cpu(name, dtypes, monkeypatch):
    function, arguments, numbers = EVERY[name]
    expected = arrays_of(function(**given_as(tensor_of, arguments, numbers, dtypes)))
    monkeypatch.setattr("fastgae._interop.torch.on_device", lambda tensor: True)  # also under the interpreter
    given = given_as(lambda *array: tensor_of(*array).to(DEVICE), arguments, numbers, dtypes)
    for got, right in zip(arrays_of(function(**given)), expected, strict=True):
        assert got.device.type == DEVICE
        assert got.dtype == right.dtype
        if name in OWN_EXPONENTIAL:
            torch.testing.assert_close(got.cpu(), right)
        else:
            assert_same_bits(got.double().cpu().numpy(), right.double().numpy())


def test_coefficients_on_the_device(monkeypatch):
    """torchrl keeps gamma and lambda in buffers, which lie where the agent does."""
    function, arguments, numbers = EVERY["torchrl gae"]
    arguments = {**arguments, "gamma": np.array(0.9), "lmbda": np.array(0.8)}
    expected = function(**given_as(tensor_of, arguments, numbers, ["float32"]))
    monkeypatch.setattr("fastgae._interop.torch.on_device", lambda tensor: True)
    got = function(**given_as(lambda *array: tensor_of(*array).to(DEVICE), arguments, numbers, ["float32"]))
    for result, right in zip(got, expected, strict=True):
        assert_same_bits(result.cpu().numpy(), right.numpy())


def test_whitening_of_one_token_is_nan(monkeypatch):
    """On the CPU it is an error. Here nobody looks at the mask."""
    function, arguments, numbers = EVERY["verl"]
    monkeypatch.setattr("fastgae._interop.torch.on_device", lambda tensor: True)
    mask = np.zeros_like(arguments["response_mask"])
    given = given_as(tensor_of, {**arguments, "response_mask": mask}, numbers, ["float32"])
    advantages, _ = function(
        **{name: each.to(DEVICE) if torch.is_tensor(each) else each for name, each in given.items()}
    )
    assert advantages.isnan().all()
