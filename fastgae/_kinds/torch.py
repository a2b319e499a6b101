"""Tensors of torch."""

from typing import Any

import torch
from numpy.typing import NDArray

NARROW = (torch.bfloat16, torch.float16)


def to_numpy(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    if not tensor.is_cpu:
        raise TypeError(f"{name} is on {tensor.device}, and fastgae computes on the CPU: pass {name}.cpu()")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}: pass {name}.to_dense()")
    constant = tensor.detach() if tensor.requires_grad else tensor
    try:
        array: NDArray[Any] = (constant.float() if tensor.dtype in NARROW else constant).numpy()
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from error
    return array


def from_numpy(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array)
