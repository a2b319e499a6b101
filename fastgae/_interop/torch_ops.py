"""The operations that stand for calls in code that torch compiles, or transforms with ``torch.func``; and gradients.

There is ``fastgae::<name>`` for each function in ``FUNCTIONS``.
"""

import inspect
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack

from fastgae._call import GAEResult, Role, names_of
from fastgae._interop.arrays import OnDevice, as_setting, native
from fastgae._interop.libraries import FUNCTIONS, as_array, dtype_of_results, gives_two
from fastgae._interop.torch import is_compiling, numpy_dtype, transforms
from fastgae._interop.torch_devices import computed

NUMPYS: Any = (np.generic, np.ndarray)  # torch.compile knows no `np.generic | np.ndarray`
NO_OPERANDS = ("out", "stop_gradients")  # arguments that an operation does not have
# Arguments that are never tensors. Every other argument is a tensor, None, or a number in place of a tensor.
NO_TENSORS = names_of(Role.SETTING, Role.CONSTANT)


def traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call the operation that stands for a function, and then fill ``out``. Its results have no gradient."""
    name, out = function.__name__, arguments.get("out")
    if name not in FUNCTIONS:
        raise TypeError(f"{name} needs the numbers themselves: call it outside of torch.compile and torch.func")
    results = OPERATIONS[name](**operands(arguments))
    if not isinstance(results, tuple):
        _check_out(out, results)
        return results if out is None else _filled(out, results)
    if out is None:
        return GAEResult(*results)
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError("out must be a pair: two tensors, or a tensor and None")
    if out[0] is out[1]:
        one = "out is (None, None): there is nothing to compute"
        raise ValueError(one if out[0] is None else "out[0] and out[1] are one tensor: pass two")
    for array, result in zip(out, results, strict=True):
        _check_out(array, result)
    return GAEResult(*map(_filled, out, results))


def operands(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the operation.

    Numbers of Python in place of tensors get separate arguments, because as tensors they would promote dtypes.
    """
    given: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name, value in arguments.items():
        if name in NO_OPERANDS:
            continue
        if isinstance(value, Tensor):
            # In torch.func.vmap, requires_grad may be False and the tensor inside have a gradient.
            given[name] = value.detach() if value.requires_grad or transforms() else value
        elif value is None or name in NO_TENSORS:
            given[name] = as_setting(name, value)
        elif isinstance(value, NUMPYS) and value.ndim == 0:
            given[name] = torch.as_tensor(value[()], device="cpu")  # because a number of NumPy promotes dtypes
        elif isinstance(value, int | float) or getattr(value, "ndim", None) == 0:
            given[name] = None
            numbers[name] = float(value)
        else:
            raise TypeError(
                f"{name} must be a tensor or a number in code that torch compiles or transforms: convert it"
            )
    # Names in one text, because torch.jit.trace knows no lists of text.
    return {**given, "names": ",".join(numbers), "numbers": [*numbers.values()]}


def _filled(out: Any, result: Tensor) -> Any:
    """Copy a result to a tensor of ``out`` and return that tensor; return None if there is none."""
    return None if out is None else out.copy_(result)


def _check_out(out: Any, result: Tensor) -> None:
    if out is None:
        return
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {type(out).__name__}")
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(f"out has shape {out.shape}, {out.dtype}; expected {result.shape}, {result.dtype}")


def _registered(name: str, function: Callable[..., Any]) -> Any:
    """Register the operation that stands for a function, and return it."""
    hints = get_type_hints(function)
    annotations = {name: hints[name] for name in inspect.signature(function).parameters if name not in NO_OPERANDS}
    first, *others = annotations
    types = [f"Tensor {first}", *(f"{_type_in_torch(other, annotations[other])} {other}" for other in others)]
    results = "(Tensor, Tensor)" if gives_two(function) else "Tensor"

    def bound(given: tuple[Any, ...]) -> dict[str, Any]:
        *arguments, names, numbers = given
        return dict(zip(annotations, arguments, strict=True)) | dict(zip(names.split(","), numbers, strict=False))

    def run(*given: Any) -> Any:
        result = computed(function, bound(given))
        return tuple(each.contiguous() for each in result) if isinstance(result, tuple) else result.contiguous()

    def fake(*given: Any) -> Any:
        arguments = bound(given)
        dtype = dtype_of_results(function, {name: _dtype_alone(name, value) for name, value in arguments.items()})
        like = [arguments[first].new_empty(arguments[first].shape, dtype=getattr(torch, dtype.name)) for _ in "AR"]
        return tuple(like) if gives_two(function) else like[0]

    def batched(info: Any, axes: tuple[Any, ...], *given: Any) -> Any:
        """Make the calls of a batch one by one; in each of them, a tensor may belong to a batch further out."""
        pairs = list(zip(given, axes, strict=True))
        calls = [
            operation(*(each.select(axis, i) if isinstance(axis, int) else each for each, axis in pairs))
            for i in range(info.batch_size)
        ]
        if not calls:  # an empty batch: what one call would return has the shapes
            calls = [fake(*(_without(each, axis) if isinstance(axis, int) else each for each, axis in pairs))]
        if gives_two(function):
            return tuple(torch.stack(each)[: info.batch_size] for each in zip(*calls, strict=True)), (0, 0)
        return torch.stack(calls)[: info.batch_size], 0

    operation = torch.library.custom_op(
        f"fastgae::{name}",
        run,
        mutates_args=(),
        schema=f"({', '.join(types)}, str names, float[] numbers) -> {results}",
    )
    operation.register_fake(fake)
    operation.register_vmap(batched)
    return operation


def _type_in_torch(name: str, annotation: Any) -> str:
    """Return torch's name for the type of an argument, which for a setting is the type in its annotation."""
    if name not in NO_TENSORS:
        return "Tensor?"
    types = {*(get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation])}
    # The name of an Enum's member is passed, a str, and so is one of the words of a Literal.
    (required,) = {str if each is Enum or get_origin(each) is Literal else each for each in types - {NoneType}}
    return f"{required.__name__}{'?' if NoneType in types else ''}"


def _without(tensor: Tensor, axis: int) -> Tensor:
    """Return a tensor that has all axes but one, and no numbers yet."""
    return tensor.new_empty(tensor.shape[:axis] + tensor.shape[axis + 1 :])


def _dtype_alone(name: str, given: Any) -> Any:
    """Return an empty array in place of a tensor, because only its dtype counts, and anything else as it is."""
    return np.empty(0, numpy_dtype(name, given)) if isinstance(given, Tensor) else given


OPERATIONS = {name: _registered(name, function) for name, function in FUNCTIONS.items()}


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
        name: given if isinstance(given, Tensor) else torch.tensor(native(as_array(name, given)), device=device)
        for name, given in arguments.items()
        if not (given is None or type(given) in (int, float) or name in NO_TENSORS)
    }
    if "final_values" in tensors:
        tensors["final_values"] = _dense(next(iter(tensors.values())), tensors["truncated"], tensors["final_values"])
    held = {
        name: OnDevice(tensor, tuple(tensor.shape), numpy_dtype(name, tensor), "autograd")
        for name, tensor in tensors.items()
    }
    results = function(**{**arguments, **held})
    if isinstance(numbers, GAEResult):
        return GAEResult(*map(Differentiated.apply, numbers, results))
    return Differentiated.apply(numbers, results)


def _dense(rewards: Tensor, truncated: Tensor, final: Tensor) -> Tensor:
    """Return final values in the shape of rewards. Sparse ones have one number per True of truncated, in C order."""
    if final.shape == rewards.shape:
        return final
    flags = (truncated != 0).reshape(*truncated.shape, *(1,) * (rewards.ndim - truncated.ndim)).expand(rewards.shape)
    return torch.zeros(rewards.shape, dtype=final.dtype, device=final.device).masked_scatter(flags, final)
