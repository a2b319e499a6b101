"""Every function of compat by torch's own operations, as on a GPU and in compiled code, and what devices it refuses."""

import importlib

import pytest

from fastgae import BackendUnavailableError
from support.compat_calls import IN_TORCH, assert_same_tensors, prepared, tensor_of
from support.functions import arrays_of

torch = pytest.importorskip("torch")
importlib.import_module("fastgae._interop.torch_ops")  # or it would keep a function that a test has replaced
MIXES = [["float32"], ["float64"], ["int64", "float32"], ["bfloat16", "float32"]]


def tensors(name, dtypes=("float32",), convert=tensor_of):
    return prepared(IN_TORCH[name], dtypes, convert)


@pytest.mark.parametrize("dtypes", MIXES, ids="-".join)
@pytest.mark.parametrize("name", IN_TORCH)
def test_the_bits_of_numpy_by_operations_of_torch(name, dtypes, monkeypatch):
    function, given = tensors(name, dtypes)
    expected = function(**given)
    monkeypatch.setattr("fastgae._interop.torch.computes", lambda tensor: True)
    assert_same_tensors(name, function(**given), expected)


@pytest.mark.parametrize("name", IN_TORCH)
def test_no_number_is_looked_at(name, monkeypatch):
    """Meta tensors have no numbers, so to copy one to the CPU, or to read one, is an error."""
    function, given = tensors(name)
    expected = arrays_of(function(**given))
    monkeypatch.setattr("fastgae._interop.torch.is_compiling", lambda: True)  # so that gae is an operation
    monkeypatch.setattr("fastgae._interop.torch_devices.check_device", lambda name, tensor: None)
    _, given = tensors(name, convert=lambda *array: tensor_of(*array).to("meta"))
    for got, right in zip(arrays_of(function(**given)), expected, strict=True):
        assert (got.device.type, got.dtype, got.shape) == ("meta", right.dtype, right.shape)


@pytest.mark.parametrize("name", IN_TORCH)
def test_gradients_end(name):
    function, given = tensors(name)
    for number in IN_TORCH[name][2]:
        given[number].requires_grad_()
    assert not any(result.requires_grad for result in arrays_of(function(**given)))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor():
    function, given = tensors("cleanrl")
    for name in ("rewards", "dones"):
        nested = torch.nested.nested_tensor([*given[name]])
        with pytest.raises(TypeError, match=f"{name} is a nested tensor: pass torch.nested.to_padded_tensor"):
            function(**{**given, name: nested})


def elsewhere(place):
    """Tensors that are, as far as anybody can see, on another device."""

    class Elsewhere(torch.Tensor):
        is_cpu = False
        device = torch.device(place)

    return lambda array, dtype: tensor_of(array, dtype).as_subclass(Elsewhere)


@pytest.mark.parametrize("name", ["brax", "verl", "pufferlib"])
@pytest.mark.parametrize(
    ("place", "error", "what"),
    [
        ("cuda:0", BackendUnavailableError, r"is an array on cuda:0, .* pip install '\.\[gpu\]' in a clone"),
        ("mps:0", TypeError, r"is on mps:0, and fastgae computes on the CPU and on GPUs of .*: pass \w+\.cpu\(\)"),
    ],
)
def test_devices_without_a_backend(name, place, error, what, monkeypatch):
    monkeypatch.setattr("fastgae._engine.dispatch._import", lambda name: ModuleNotFoundError("No triton"))
    function, given = tensors(name, convert=elsewhere(place))
    with pytest.raises(error, match=what):
        function(**given)


def test_two_devices(monkeypatch):
    monkeypatch.setattr("fastgae._engine.dispatch.on_devices", lambda name, array: None)
    function, there = tensors("cleanrl", convert=elsewhere("cuda:0"))
    _, here = tensors("cleanrl")
    with pytest.raises(TypeError, match=r"values is on cuda:0, .*pass values\.cpu\(\)"):
        function(**{**here, "values": there["values"]})
    for dones, match in (
        (here["dones"], r"dones is on cpu, and rewards is on cuda:0: pass dones\.to\(rewards\.device\)"),
        (here["dones"].numpy(), r"dones is not a tensor, .* torch\.as_tensor\(dones, device=rewards\.device\)"),
    ):
        with pytest.raises(TypeError, match=match):
            function(**{**there, "dones": dones})
