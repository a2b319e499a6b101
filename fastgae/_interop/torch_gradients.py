"""Make calls with torch tensors whose results have gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack

from fastgae._call import GAEResult
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import as_array
from fastgae._interop.torch import is_compiling, numpy_dtype, transforms
from fastgae._interop.torch_devices import computed
from fastgae._interop.torch_ops import NO_TENSORS, traced


class Differentiated(torch.autograd.Function):  # type: ignore[misc]
    """Give the numbers of a result the derivatives of another tensor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(numbers: Tensor, differentiable: Tensor) -> Tensor:
        return numbers.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, gradient

    @staticmethod
    def jvp(ctx: Any, of_numbers: Any, of_differentiable: Tensor) -> Tensor:
        return of_differentiable.clone()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def differentiated(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the results of a kernel, with the derivatives of the same equations in torch.

    torch.compile breaks the graph here, and calls it as it is.
    """
    if is_compiling():  # only torch.export comes here
        raise NotImplementedError(
            f"torch.export cannot record gradients of {function.__name__}: leave stop_gradients True"
        )
    if sum(each.key() == TransformType.Jvp for each in get_interpreter_stack() or ()) > 1:
        raise NotImplementedError(
            f"torch cannot take a forward derivative of a forward derivative of {function.__name__}: take one of the "
            "two backward, as torch.func.hessian does"
        )
    arguments = arguments | {"stop_gradients": True}
    numbers = (traced if transforms() else computed)(function, arguments)
    device = next(iter(arguments.values())).device
    tensors = {
        name: given if isinstance(given, Tensor) else torch.as_tensor(as_array(name, given), device=device)
        for name, given in arguments.items()
        if not (given is None or (type(given) in (int, float) and name != "final_values") or name in NO_TENSORS)
    }
    if "final_values" in tensors:
        tensors["final_values"] = _dense(next(iter(tensors.values())), tensors["truncated"], tensors["final_values"])
    held = {
        name: OnDevice(tensor, tuple(tensor.shape), numpy_dtype(name, tensor), "autograd")
        for name, tensor in tensors.items()
    }
    results = function(**{**arguments, **held, "backend": None} if "backend" in arguments else {**arguments, **held})
    if isinstance(numbers, GAEResult):
        return GAEResult(*map(Differentiated.apply, numbers, results))
    return Differentiated.apply(numbers, results)


def _dense(rewards: Tensor, truncated: Tensor, final: Tensor) -> Tensor:
    """Return final values in the shape of rewards. Sparse ones have one number per True of truncated, in C order."""
    if final.shape == rewards.shape:
        return final
    flags = (truncated != 0).reshape(*truncated.shape, *(1,) * (rewards.ndim - truncated.ndim)).expand(rewards.shape)
    return torch.zeros(rewards.shape, dtype=final.dtype, device=final.device).masked_scatter(flags, final)
