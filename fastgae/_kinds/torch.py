"""Tensors of torch."""

from typing import Any

import torch
from numpy.typing import NDArray

NARROW = (torch.bfloat16, torch.float16)


def to_numpy(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    """Gradients end here; 16-bit floats become a copy in float32."""
    if not tensor.is_cpu:
        raise TypeError(f"{name} is on {tensor.device}, and fastgae computes on the CPU: pass {name}.cpu()")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}: pass {name}.to_dense()")
    plain = tensor.detach() if tensor.requires_grad else tensor
    try:
        return (plain.float() if plain.dtype in NARROW else plain).numpy()
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from error


def from_numpy(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array)
