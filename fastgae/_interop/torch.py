"""Convert torch tensors."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch._C import _get_dispatch_mode, _is_tracing, _TorchDispatchModeKey
from torch._C._functorch import peek_interpreter_stack as transform  # None outside of torch.func.vmap, grad and others
from torch.compiler import is_compiling as is_compiling  # for the decorator of compat

from fastgae._call import Array
from fastgae._interop.arrays import BFLOAT16, NARROW_FLOATS, given_back

RECORDS = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY, _TorchDispatchModeKey.FUNCTIONAL)
NARROW_DTYPES = tuple(getattr(torch, name) for name in NARROW_FLOATS)


def to_numpy(name: str, tensor: torch.Tensor) -> Array:
    """Return a NumPy array in the same memory, without gradients. Its dtype for bfloat16 is ``BFLOAT16``."""
    if tensor.is_cpu:
        try:
            array: Array = (tensor.detach() if tensor.requires_grad else tensor).numpy()
        except (RuntimeError, TypeError):
            return _unusual_to_numpy(name, tensor)
        _check_memory(name, tensor)
        return array
    if tensor.is_meta:
        raise TypeError(f"{name} is on meta, where a tensor has no numbers: pass one on the CPU or on a GPU")
    here = "the CPU" if tensor.is_cuda else "the CPU and on GPUs of CUDA and ROCm"
    raise TypeError(f"{name} is on {tensor.device}, and fastgae computes on {here}: pass {name}.cpu()")


def _unusual_to_numpy(name: str, tensor: torch.Tensor) -> Array:
    """Return the array of a tensor from which torch itself makes none, or say why there is none."""
    try:
        constant = in_memory(name, tensor)
    except NotImplementedError as error:  # in torch.func
        raise TypeError(
            f"{name} has no numbers in torch.func: call this outside, or pass a tensor as the first argument"
        ) from error
    try:
        # NumPy cannot read bfloat16, so it gets the bits.
        narrow = tensor.dtype is torch.bfloat16
        array: Array = constant.view(torch.int16).numpy().view(BFLOAT16) if narrow else constant.numpy()
    except (RuntimeError, TypeError) as error:
        whole = f"; pass {name}.full_tensor(), or {name}.to_local()" if hasattr(tensor, "full_tensor") else ""
        raise TypeError(f"{name} cannot be read as an array: {error}{whole}") from error
    return array


def plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a strided tensor of the same memory, without gradients."""
    if tensor.is_nested:
        raise TypeError(
            f"{name} is a nested tensor: pass torch.nested.to_padded_tensor({name}, 0.0) and a mask; of jagged ones, "
            f"fastgae.gae_packed takes {name}.values(), and {name}.offsets() as cu_seqlens"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}: pass {name}.to_dense()")
    return tensor.detach() if tensor.requires_grad else tensor


def in_memory(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a strided tensor whose memory holds its numbers. A view of negated numbers is copied."""
    given = plain(name, tensor)
    _check_memory(name, given)
    return given.resolve_neg() if given.is_neg() else given


def _check_memory(name: str, tensor: torch.Tensor) -> None:
    if tensor.untyped_storage().nbytes() < bytes_to_the_end(tensor):
        raise TypeError(
            f"{name} has no memory, because its storage was freed or made smaller, as FSDP does between two uses of a "
            "parameter: pass the tensor while its storage is there, or a copy made then"
        )


def bytes_to_the_end(tensor: torch.Tensor) -> int:
    """Return how many bytes of its storage a tensor needs."""
    if tensor.is_contiguous():
        return tensor.storage_offset() * tensor.element_size() + tensor.nbytes if tensor.nbytes else 0
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.nbytes else 0


@functools.cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    name = "float32" if dtype in NARROW_DTYPES else str(dtype).removeprefix("torch.")
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    return found if found.isbuiltin == 1 else None  # ml_dtypes adds others, once JAX is imported


def numpy_dtype(name: str, tensor: torch.Tensor) -> np.dtype[Any]:
    """Return NumPy's dtype for the numbers of a tensor: float32 for 16-bit floats, because they are read as float32."""
    dtype = _numpy_dtype(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{name} has dtype {tensor.dtype}; expected float32, float64, 16-bit floats or integers")
    return dtype


def from_numpy(results: Any, like: torch.Tensor) -> Any:
    """Return what a function has returned, with tensors of the same memory."""
    return given_back(results, torch.from_numpy)


def on_device(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is computed on its own device, because it is not in the memory of the CPU."""
    return not tensor.is_cpu


def transforms() -> bool:
    """Return whether torch compiles, transforms or records the code that runs, and must see an operation.

    ``make_fx`` and ``torch.jit.trace`` would take what NumPy computes for constants.
    """
    return is_compiling() or transform() is not None or _is_tracing() or any(map(_get_dispatch_mode, RECORDS))


def may_be_read(given: tuple[Any, ...]) -> bool:
    """Return whether NumPy may compute a call of these arguments, of which the first is a tensor."""
    return bool(given[0].is_cpu) and not transforms()


def computes(tensor: torch.Tensor) -> bool:
    """Return whether torch computes with a tensor, and not NumPy: on a GPU, and in code that it transforms."""
    return transforms() or on_device(tensor)


def promoted(numbers: Iterable[object]) -> torch.dtype:
    """Return the dtype to which torch promotes the tensors among these, or its default if none has floats."""
    dtypes = [each.dtype for each in numbers if isinstance(each, torch.Tensor)]
    dtype = functools.reduce(torch.promote_types, dtypes)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def converter(numbers: Iterable[object]) -> Callable[[Array], torch.Tensor]:
    """Return the function that turns results in NumPy into tensors of the dtype to which torch promotes the numbers."""
    dtype = promoted(numbers)
    return lambda result: torch.from_numpy(result).to(dtype)


def check_fillable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.requires_grad:
        raise ValueError("out requires grad, but results have no gradient: pass out.detach()")
    if tensor.dtype in NARROW_DTYPES:
        raise TypeError(f"out has dtype {tensor.dtype}, but 16-bit inputs give float32 results")
    if tensor.is_neg():
        raise TypeError("out is a view of negated numbers, which only torch can write: pass another tensor")
    return tensor


def tell_autograd(filled: Iterable[Any]) -> None:
    """Mark the tensors of ``out`` as changed.

    A backward pass that needs their earlier numbers then raises an error, instead of a wrong gradient.
    """
    for tensor in filled:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
