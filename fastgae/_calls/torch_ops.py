"""What torch compiles: for each function an operation of torch's, ``fastgae::<its name>``."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import torch

from fastgae._call import GAEResult
from fastgae._calls import FUNCTIONS, dtype_of_results, gives_two
from fastgae._calls.torch import call
from fastgae._kinds.torch import NARROW

# The arguments that are no arrays, and what they are to torch.
TYPES = {
    **dict.fromkeys(("autoreset", "normalize", "backend"), "str?"),
    **dict.fromkeys(("rho_clip", "c_clip", "advantage_clip"), "float?"),
    "by": "str",
    "eps": "float",
    "n": "int",
    "num_threads": "int?",
    "tail_normalized": "bool",
    "time_axis": "int",
}


def traced(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """The operation in place of the call. Gradients end before it; ``out`` is filled after it."""
    name, out = function.__name__, arguments.get("out")
    if name not in FUNCTIONS:
        raise TypeError(f"{name} needs the numbers themselves: call it outside of torch.compile")
    results = OPERATIONS[name](**operands(arguments))
    if not isinstance(results, tuple):
        return results if out is None else _filled(out, results)
    return GAEResult(*results) if out is None else GAEResult(*map(_filled, out, results))


def operands(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the operation takes them: numbers in place of arrays apart, for a tensor would promote."""
    given: dict[str, Any] = {}
    names: list[str] = []
    numbers: list[float] = []
    for name, value in arguments.items():
        if name == "out":
            continue
        if isinstance(value, torch.Tensor):
            given[name] = value.detach()
        elif value is None or name in TYPES:
            given[name] = value.name if isinstance(value, Enum) else value
        else:
            given[name] = None
            names.append(name)
            numbers.append(float(value))
    return {**given, "names": names, "numbers": numbers}


def _filled(out: Any, result: torch.Tensor) -> Any:
    if out is None:
        return None
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(f"out has shape {out.shape}, {out.dtype}; expected {result.shape}, {result.dtype}")
    return out.copy_(result)


def _registered(name: str, function: Callable[..., Any]) -> Any:
    parameters = [parameter for parameter in inspect.signature(function).parameters if parameter != "out"]
    first, *others = parameters
    types = [f"Tensor {first}", *(f"{TYPES.get(other, 'Tensor?')} {other}" for other in others)]
    results = "(Tensor, Tensor)" if gives_two(function) else "Tensor"

    def bound(given: tuple[Any, ...]) -> dict[str, Any]:
        *arguments, names, numbers = given
        return dict(zip(parameters, arguments, strict=True)) | dict(zip(names, numbers, strict=True))

    def run(*given: Any) -> Any:
        result = call(function, bound(given))
        return tuple(each.contiguous() for each in result) if isinstance(result, tuple) else result.contiguous()

    def fake(*given: Any) -> Any:
        arguments = bound(given)
        dtype = dtype_of_results(function, {argument: _dtype_alone(value) for argument, value in arguments.items()})
        like = [arguments[first].new_empty(arguments[first].shape, dtype=getattr(torch, dtype.name)) for _ in "AR"]
        return tuple(like) if gives_two(function) else like[0]

    operation = torch.library.custom_op(
        f"fastgae::{name}",
        run,
        mutates_args=(),
        schema=f"({', '.join(types)}, str[] names, float[] numbers) -> {results}",
    )
    operation.register_fake(fake)
    return operation


def _dtype_alone(given: Any) -> Any:
    if not isinstance(given, torch.Tensor):
        return given
    return np.empty(0, np.float32 if given.dtype in NARROW else str(given.dtype).removeprefix("torch."))


OPERATIONS = {name: _registered(name, function) for name, function in FUNCTIONS.items()}
