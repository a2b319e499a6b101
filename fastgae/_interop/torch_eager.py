"""Make calls with torch tensors that hold numbers."""

from collections.abc import Callable
from typing import Any

import torch

from fastgae._call import GAEResult
from fastgae._interop.conversion import given_back, taken
from fastgae._interop.torch import check_fillable, from_numpy, on_device, tell_autograd, to_numpy


def computed(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with tensors that hold numbers."""
    if on_device(next(iter(arguments.values()))) or arguments.get("backend") == "triton":
        from fastgae._interop.torch_devices import call

        return call(function, arguments)
    arrays, out = taken(arguments, torch.Tensor, to_numpy), arguments.get("out")
    if out is None:
        return given_back(function(**arrays), from_numpy)
    arrays["out"] = tuple(map(_to_fill, out)) if isinstance(out, tuple | list) else _to_fill(out)
    pair = isinstance(function(**arrays), GAEResult)
    tell_autograd(out if pair else [out])
    return GAEResult(*out) if pair else out


def _to_fill(out: Any) -> Any:
    """Return the array that shares its memory with a tensor of ``out``."""
    return to_numpy("out", check_fillable(out)) if isinstance(out, torch.Tensor) else out
