"""Make calls with torch's tensors on a GPU, which stay there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastgae._call import GAEResult
from fastgae._interop.arrays import OnDevice
from fastgae._interop.calls import FUNCTIONS
from fastgae._interop.torch import check_fillable, numpy_dtype, plain, tell_autograd, to_numpy

BACKEND = "triton"  # which is chosen by where the tensors are


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with tensors on the device of its first argument, and return its results there."""
    (name, first), *_ = arguments.items()
    if first.device.type not in ("cuda", "cpu"):
        to_numpy(name, first)  # which raises what there is to say
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
        if each != "out"
    }
    if "backend" in taken:
        taken["backend"] = "numpy"  # which has no short cut that would look at the arrays; it computes nothing
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
    if isinstance(given, torch.Tensor):
        if given.device == first.device:
            tensor = plain(name, given).resolve_neg()
            return OnDevice(tensor, tuple(tensor.shape), numpy_dtype(name, tensor))
        if given.is_cpu and given.ndim == 0:
            return to_numpy(name, given)
        raise TypeError(
            f"{name} is on {given.device}, and {first_name} is on {first.device}: pass {name}.to({first_name}.device)"
        )
    if isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        raise TypeError(
            f"{name} is no tensor, and {first_name} is on {first.device}: pass "
            f"torch.as_tensor({name}, device={first_name}.device)"
        )
    return given
