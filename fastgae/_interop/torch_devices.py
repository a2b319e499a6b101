"""Make calls with torch tensors on a GPU, which stay there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastgae._call import GAEResult
from fastgae._interop.arrays import OnDevice
from fastgae._interop.functions import FUNCTIONS
from fastgae._interop.torch import NARROW_DTYPES, check_fillable, in_memory, numpy_dtype, plain, tell_autograd, to_numpy

WORKING_DTYPES = (torch.float32, torch.float64)
BACKEND = "triton"  # chosen because the tensors are on a GPU


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with tensors on the device of its first argument, and return its results there."""
    (name, first), *_ = arguments.items()
    check_device(name, first)
    if function.__name__ not in FUNCTIONS:
        raise TypeError(f"{name} is on {first.device}, and {function.__name__} computes on the CPU: pass {name}.cpu()")
    backend = arguments.get("backend")
    if backend not in (None, BACKEND):
        raise TypeError(
            f"{name} is on {first.device}, and backend={backend!r} computes on the CPU: leave it out, or pass "
            f"{name}.cpu()"
        )
    taken = {
        # Most arguments are None.
        each: given if given is None else _taken(each, given, name, first)
        for each, given in arguments.items()
        if each not in ("out", "backend")
    }
    out = arguments.get("out")
    if out is None:
        return function(**taken)
    outputs = out if isinstance(out, tuple | list) else [out]
    held = tuple(_to_fill(each, name, first) for each in outputs)
    result = function(**taken, out=held if outputs is out else held[0])
    tell_autograd(outputs)
    return GAEResult(*out) if isinstance(result, GAEResult) else out


def _to_fill(out: Any, first_name: str, first: torch.Tensor) -> Any:
    """Return a tensor of ``out`` as the function takes it. Anything but a tensor is left for the function to check."""
    return _taken("out", check_fillable(out), first_name, first) if isinstance(out, torch.Tensor) else out


def _taken(name: str, given: Any, first_name: str, first: torch.Tensor) -> Any:
    """Return an argument as the function takes it: a tensor as it lies on the device, anything else as it is."""
    check_place(name, given, first_name, first)
    if not isinstance(given, torch.Tensor):
        return given
    return held(name, given) if given.device == first.device else to_numpy(name, given)


def held(name: str, given: torch.Tensor) -> OnDevice:
    """Return a tensor as the checks see it."""
    tensor = in_memory(name, given)
    return OnDevice(tensor, tuple(tensor.shape), numpy_dtype(name, tensor))


def check_device(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type not in ("cuda", "cpu"):
        to_numpy(name, tensor)  # this raises the right error


def check_place(name: str, given: object, first_name: str, first: torch.Tensor) -> None:
    """Raise an error unless an argument can be read on the device of the first one: a tensor there, or one number."""
    if isinstance(given, torch.Tensor):
        if given.device != first.device and not (given.is_cpu and given.ndim == 0):
            raise TypeError(
                f"{name} is on {given.device}, and {first_name} is on {first.device}: pass "
                f"{name}.to({first_name}.device)"
            )
    elif isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        raise TypeError(
            f"{name} is not a tensor, and {first_name} is on {first.device}: pass "
            f"torch.as_tensor({name}, device={first_name}.device)"
        )


def as_tensor(name: str, given: Any, first_name: str, first: torch.Tensor) -> Any:
    """Return an argument of a function in torch: a tensor as it lies on the device, anything else as it is."""
    check_place(name, given, first_name, first)
    return plain(name, given) if isinstance(given, torch.Tensor) else given


def floats(name: str, tensor: Any) -> Any:
    """Return a tensor as floats that kernels take: 16-bit floats as float32, and integers as float64."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype in WORKING_DTYPES:
        return tensor
    if tensor.is_complex():
        raise TypeError(f"{name} has dtype {tensor.dtype}; expected float32, float64, 16-bit floats or integers")
    return tensor.float() if tensor.dtype in NARROW_DTYPES else tensor.double()
