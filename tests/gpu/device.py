"""Calls with tensors on the GPU, or under Triton's interpreter on the CPU, beside the backend numpy."""

import inspect

import numpy as np
import torch

import fastgae
from fuzz.calls import everywhere
from support.cases import assert_same_bits
from support.functions import arrays_of, converted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def as_c(tensor):
    return tensor


def transposed(tensor):
    """Return the tensor with its axes in the opposite order in memory."""
    axes = tuple(range(tensor.ndim))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


def sliced(tensor):
    """Return the tensor as every second element of a larger one, along every axis."""
    whole = tensor.new_ones([2 * n + 1 for n in tensor.shape])
    view = whole[tuple(slice(1, None, 2) for _ in tensor.shape)]
    return view.copy_(tensor)


def padded(tensor):
    """Return the tensor as rows of a wider block that begin anywhere."""
    if not tensor.ndim:
        return tensor
    whole = tensor.new_ones((*tensor.shape[:-1], tensor.shape[-1] + 3))
    return whole[..., 1:-2].copy_(tensor)


PLACES = (as_c, transposed, sliced, padded)


def tensor(array, place=as_c):
    """Return the numbers of an array as a tensor on the device, in a place of its memory."""
    native = np.array(array, array.dtype.newbyteorder("="), order="C")
    return place(torch.from_numpy(native).to(DEVICE))


def tensors(arguments, place=as_c):
    return converted(arguments, lambda array: tensor(array, place))


def narrowed(given, dtype):
    """Return tensors with their floats in another dtype, and anything else as it is."""
    return {name: t.to(dtype) if torch.is_tensor(t) and t.is_floating_point() else t for name, t in given.items()}


def dense(arguments):
    """Return the arguments with final values of all steps: to count the truncated steps would wait for the GPU."""
    first, final = next(iter(arguments.values())), arguments.get("final_values")
    if np.shape(final) in ((), first.shape):
        return arguments
    whole = np.zeros(first.shape, final.dtype)
    whole[everywhere(arguments["truncated"] != 0, first.shape)] = final
    return {**arguments, "final_values": whole}


def called(function, arguments):
    """Call a function with tensors, which are computed where they are."""
    takes_backend = "backend" in inspect.signature(function).parameters
    if DEVICE == "cpu" and not takes_backend:
        from fastgae._interop.torch_devices import call

        return call(function, arguments)
    return function(**arguments, **({"backend": "triton"} if takes_backend else {}))


def assert_bits(got, expected, what=""):
    """Assert tensors on the device with the bits of arrays of NumPy."""
    assert isinstance(got, fastgae.GAEResult) == isinstance(expected, fastgae.GAEResult)
    for result, array in zip(arrays_of(got), arrays_of(expected), strict=True):
        if array is None:
            assert result is None
            continue
        assert result.device.type == DEVICE
        assert not result.requires_grad
        assert_same_bits(result.cpu().numpy(), array, what)


def check(function, arguments, place=as_c):
    """Assert that a call gives the bits of the reference."""
    how = {"backend": "numpy"} if "backend" in inspect.signature(function).parameters else {}
    assert_bits(called(function, tensors(arguments, place)), function(**arguments, **how), place.__name__)
