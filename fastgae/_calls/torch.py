"""Calls with tensors of torch."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from fastgae._call import GAEResult
from fastgae._kinds.torch import NARROW, from_numpy, to_numpy


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if torch.compiler.is_compiling():
        from fastgae._calls.torch_ops import traced  # registers operations, which takes longer than a call

        return traced(function, arguments)
    taken = {
        # Most are None, which isinstance takes long to see.
        name: given if given is None or not isinstance(given, torch.Tensor) else to_numpy(name, given)
        for name, given in arguments.items()
    }
    out = arguments.get("out")
    if out is not None:
        taken["out"] = tuple(map(_to_fill, out)) if isinstance(out, tuple | list) else _to_fill(out)
    result = function(**taken)
    if out is not None:
        pair = isinstance(result, GAEResult)
        _tell_autograd(out if pair else [out])
        return GAEResult(*out) if pair else out
    if isinstance(result, GAEResult):
        return GAEResult(*map(from_numpy, result))
    return from_numpy(result) if isinstance(result, np.ndarray) else result


def _to_fill(tensor: Any) -> Any:
    """What is written to it is written to the tensor."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.requires_grad:
        raise ValueError("out requires grad, and results have none: pass out.detach()")
    if tensor.dtype in NARROW:
        raise TypeError(f"out has dtype {tensor.dtype}, and what 16-bit numbers give is float32")
    return to_numpy("out", tensor)


def _tell_autograd(filled: Iterable[Any]) -> None:
    """A backward pass that needs what was overwritten is an error, and not a wrong gradient."""
    for tensor in filled:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
