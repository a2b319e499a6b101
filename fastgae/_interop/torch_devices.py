"""Make calls with torch tensors that hold numbers. On a GPU, they stay there.

There, the first call checks its arguments, and its function plans what to do. Calls that are alike run the same
plan: with tensors of the same shapes, strides and dtypes, and equal settings.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch

from fastgae._call import GAEResult
from fastgae._interop.arrays import OnDevice, Planned, taken
from fastgae._interop.libraries import WITHOUT_NUMBERS
from fastgae._interop.torch import (
    NARROW_DTYPES,
    bytes_to_the_end,
    check_fillable,
    from_numpy,
    in_memory,
    numpy_dtype,
    on_device,
    plain,
    tell_autograd,
    to_numpy,
)

WORKING_DTYPES = (torch.float32, torch.float64)
BACKEND = "triton"  # chosen because the tensors are on a GPU
SETTINGS = (int, bool, str, Enum)
MOST_PLANS = 1000  # calls that are never alike must not fill the memory
ALIGNMENT = 16  # a kernel may load so many bytes at once if they begin at such an address

_plans: dict[Any, tuple[Any, Any]] = {}


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with tensors on the device of its first argument, and return its results there."""
    out = arguments.get("out")
    outputs = () if out is None else out if isinstance(out, tuple | list) else (out,)
    for each in outputs:
        if isinstance(each, torch.Tensor):
            check_fillable(each)
    signature, tensors = _signature(function, arguments, outputs)
    planned = _plans.get(signature) if signature else None
    if planned is None:
        results = _checked(function, arguments, outputs)
        if isinstance(results, GAEResult):
            planned = next(each.plan for each in results if each), tuple(each and each.slot for each in results)
        elif isinstance(results, Planned):
            planned = results
        else:
            return results  # numbers
        if signature:
            if len(_plans) >= MOST_PLANS:
                _plans.clear()
            _plans[signature] = planned
    plan, slots = planned
    memories = plan.run(tensors)
    if out is not None:
        tell_autograd(outputs)
        return GAEResult(*out) if isinstance(slots, tuple) else out
    if isinstance(slots, tuple):
        return GAEResult(*[None if slot is None else memories[slot] for slot in slots])
    return memories[slots]


def _signature(
    function: Callable[..., Any], arguments: dict[str, Any], outputs: Sequence[Any]
) -> tuple[Any, list[torch.Tensor | None]]:
    """Return what calls of one plan have in common, or None if this call may share no plan; and its tensors by slot."""
    device = next(iter(arguments.values())).device
    parts: list[Any] = [function, device, *arguments]
    tensors: list[torch.Tensor | None] = []
    known = True
    for given in (*arguments.values(), *outputs):
        tensor = None
        if given is None:
            parts.append(None)
        elif isinstance(given, torch.Tensor):
            tensor = given.resolve_neg() if given.is_neg() else given
            usual = tensor.layout is torch.strided and tensor.device == device
            if usual and tensor.untyped_storage().nbytes() >= bytes_to_the_end(tensor):
                parts += tensor.shape, tensor.stride(), tensor.dtype, tensor.data_ptr() % ALIGNMENT
            else:
                known = False
        elif type(given) is float:
            parts.append(given.hex())  # because -0.0 equals 0.0, and 1.0 equals 1
        elif isinstance(given, SETTINGS):
            parts += type(given), given
        elif isinstance(given, np.generic):
            parts += given.dtype, given.tobytes()
        elif given is not outputs:
            known = False
        tensors.append(tensor)
    if known and outputs:
        held = [each for each in tensors if each is not None]
        filled = [each for each in outputs if isinstance(each, torch.Tensor)]  # of anything else, no plan is made
        known = not any(overlap(output, each) for output in filled for each in held if each is not output)
        # The plan of an output that is also an argument, or given twice, must not serve calls with separate memory.
        parts += [each is output for output in outputs for each in tensors]
    return tuple(parts) if known else None, tensors


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the memory between the first and last elements of two tensors has a byte in common."""
    return bool(one.data_ptr() < _end(other) and other.data_ptr() < _end(one))


def _end(tensor: torch.Tensor) -> int:
    """Return the address of the byte after the last element."""
    storage: int = tensor.untyped_storage().data_ptr()
    return storage + bytes_to_the_end(tensor)


def _checked(function: Callable[..., Any], arguments: dict[str, Any], outputs: Sequence[Any]) -> Any:
    """Return what a function plans for its arguments, after it has checked them."""
    (name, first), *_ = arguments.items()
    check_device(name, first)
    if function.__name__ not in (*WITHOUT_NUMBERS, "moments"):
        raise TypeError(f"{name} is on {first.device}, and {function.__name__} computes on the CPU: pass {name}.cpu()")
    backend = arguments.get("backend")
    if backend not in (None, BACKEND):
        raise TypeError(
            f"{name} is on {first.device}, and backend={backend!r} computes on the CPU: leave it out, or pass "
            f"{name}.cpu()"
        )
    taken = {
        # Most arguments are None.
        each: given if given is None else _taken(each, given, slot, name, first)
        for slot, (each, given) in enumerate(arguments.items())
        if each not in ("out", "backend")
    }
    if not outputs:
        return function(**taken)
    # Anything but a tensor is left for the function to check.
    out = tuple(
        _taken("out", each, slot, name, first) if isinstance(each, torch.Tensor) else each
        for slot, each in enumerate(outputs, len(arguments))
    )
    return function(**taken, out=out if isinstance(arguments["out"], tuple | list) else out[0])


def _taken(name: str, given: Any, slot: int, first_name: str, first: torch.Tensor) -> Any:
    """Return an argument as the function takes it: a tensor as it lies on the device, anything else as it is."""
    check_place(name, given, first_name, first)
    if not isinstance(given, torch.Tensor):
        return given
    return held(name, given, slot) if given.device == first.device else to_numpy(name, given)


def held(name: str, given: torch.Tensor, slot: int = 0) -> OnDevice:
    """Return a tensor as the checks see it."""
    tensor = in_memory(name, given)
    return OnDevice(tensor, tuple(tensor.shape), numpy_dtype(name, tensor), BACKEND, slot)


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


def one_number(given: Any, first: torch.Tensor) -> Any:
    """Return a number, which stands for one env, as a tensor on the device of the first one."""
    if given is None or isinstance(given, torch.Tensor):
        return given
    return torch.as_tensor(given, dtype=torch.float64 if isinstance(given, float) else None, device=first.device)


def floats(name: str, tensor: Any) -> Any:
    """Return a tensor as floats that kernels take: 16-bit floats as float32, and integers as float64."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype in WORKING_DTYPES:
        return tensor
    if tensor.is_complex():
        raise TypeError(f"{name} has dtype {tensor.dtype}; expected float32, float64, 16-bit floats or integers")
    return tensor.float() if tensor.dtype in NARROW_DTYPES else tensor.double()


def computed(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function with tensors that hold numbers."""
    if on_device(next(iter(arguments.values()))) or arguments.get("backend") == "triton":
        return call(function, arguments)
    arrays, out = taken(arguments, torch.Tensor, to_numpy), arguments.get("out")
    if out is None:
        return from_numpy(function(**arrays), next(iter(arguments.values())))
    arrays["out"] = tuple(map(_array_to_fill, out)) if isinstance(out, tuple | list) else _array_to_fill(out)
    pair = isinstance(function(**arrays), GAEResult)
    tell_autograd(out if pair else [out])
    return GAEResult(*out) if pair else out


def _array_to_fill(out: Any) -> Any:
    """Return the array that shares its memory with a tensor of ``out``."""
    return to_numpy("out", check_fillable(out)) if isinstance(out, torch.Tensor) else out
