"""What a call does on a GPU: made once for calls that are alike, and then run with the tensors of each call.

A plan knows shapes, strides and settings, but no addresses. Its memories are the tensors of a call, by their slots, and
new tensors, which have negative slots.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime import driver

from fastgae._backends import BackendUnavailableError

if not hasattr(triton, "knobs"):
    raise BackendUnavailableError(
        f"triton {triton.__version__} is too old: this backend needs Triton 3.4 or newer, and so torch 2.8 or newer"
    )
INTERPRETED: bool = triton.knobs.runtime.interpret


class Memory(NamedTuple):
    """The memory of a slot from an element on, in the dtype in which kernels see it."""

    slot: int
    first: int
    dtype: torch.dtype


class Strided(NamedTuple):
    """An array of a plan."""

    memory: Memory
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def tensor(self, memories: Sequence[Any]) -> torch.Tensor:
        """Return it as a tensor, once there are memories. Flags are bytes, because any byte but 0 is True."""
        whole = memories[self.memory.slot]
        whole = whole.view(torch.uint8) if whole.dtype == torch.bool else whole
        return torch.as_strided(whole.detach(), self.shape, self.stride, whole.storage_offset() + self.memory.first)


class Plan:
    """The steps of a call, and the new tensors that they need."""

    def __init__(self, device: torch.device):
        self.device = device
        self.new: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = []
        self.steps: list[Callable[[Sequence[Any], Sequence[int], Any], object]] = []

    def memory(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Memory:
        """Return new memory, which every run allocates."""
        self.new.append((tuple(shape), tuple(stride), dtype))
        return Memory(-len(self.new), 0, torch.uint8 if dtype == torch.bool else dtype)

    def scratch(self, count: int, dtype: torch.dtype) -> Memory:
        return self.memory((count,), (1,), dtype)

    def call(self, function: Callable[..., Any], *arrays: Strided) -> None:
        """Call a function of torch with tensors."""
        self.steps.append(lambda memories, *_: function(*(each.tensor(memories) for each in arrays)))

    def launch(
        self, kernel: Any, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int = 1
    ) -> None:
        """Start programs of a kernel. ``constants`` are those of its arguments for which it is compiled."""
        self.steps.append(Launch(kernel, programs, arguments, constants, warps))

    def run(self, tensors: Sequence[torch.Tensor | None]) -> Sequence[Any]:
        """Queue the steps on the current stream of the device, and return the memories."""
        if self.device.type == "cuda" and self.device.index != torch.cuda.current_device():
            with torch.cuda.device(self.device):
                return self.run(tensors)
        new = [torch.empty_strided(shape, stride, dtype=dtype, device=self.device) for shape, stride, dtype in self.new]
        memories = [*tensors, *reversed(new)]
        addresses = [0 if each is None else each.data_ptr() for each in memories]
        stream = None if INTERPRETED else driver.active.get_current_stream(self.device.index)
        for step in self.steps:
            step(memories, addresses, stream)
        return memories


class Launch:
    """A step that starts a kernel. Its first run compiles the kernel.

    An argument is a number, or a tuple of views. A view is a ``Memory`` and strides; a missing one is an empty tuple.
    """

    def __init__(self, kernel: Any, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int):
        self.kernel = kernel
        self.grid = (programs, 1, 1)
        self.arguments = arguments
        self.constants = constants
        # To fuse a product and a sum is forbidden, because each must be rounded on its own.
        self.options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": False}
        self.views, self.places = list[tuple[Any, ...]](), dict[int, slice]()  # of all arguments, and which are whose
        for place in [place for place, each in enumerate(arguments) if isinstance(each, tuple)]:
            self.places[place] = slice(len(self.views), len(self.views) + len(arguments[place]))
            self.views += map(_place, arguments[place])
        self.loaded: tuple[Any, ...] = ()  # what starts the kernel, and its first arguments

    def __call__(self, memories: Sequence[Any], addresses: Sequence[int], stream: Any) -> None:
        if not self.loaded:
            arguments = *_typed(self.arguments, memories), *self.constants
            if INTERPRETED:
                self.kernel[self.grid](*arguments, **self.options)
                return
            binary = self.kernel.warmup(*arguments, grid=self.grid, **self.options)
            if binary.module is None and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "a CUDA graph is being captured, and this call would have to load a kernel, which is not possible "
                    "then: make the same call once before the capture, with tensors of the same shapes and dtypes"
                )
            binary._init_handles()
            # binary[grid] would also collect what hooks of profilers get, which takes longer. One assignment, because
            # another thread may run this step now.
            self.loaded = binary.run, (binary.function, binary.packed_metadata, None, None, None)
        # Addresses in place of tensors, so that Triton need not ask for them, nor ask CUDA whether they are its own.
        given = [*self.arguments, *self.constants]
        views = tuple([(addresses[view[0]] + view[1], *view[2]) if view else () for view in self.views])
        for place, some in self.places.items():
            given[place] = views[some]
        start, first = self.loaded
        start(*self.grid, stream, *first, *given)


def _place(view: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the slot of a view, how many bytes of it come before the view, and the strides."""
    if not view:
        return ()
    memory, *strides = view
    return memory.slot, memory.first * memory.dtype.itemsize, strides


def _typed(argument: Any, memories: Sequence[Any]) -> Any:
    """Return an argument with a tensor in place of each memory, because a kernel is compiled for dtypes."""
    if type(argument) is Memory:
        return Strided(argument, (1,), (1,)).tensor(memories)
    if isinstance(argument, tuple):  # which may be a named tuple
        return tuple.__new__(type(argument), [_typed(each, memories) for each in argument])
    return argument


def blocks_of(count: int, size: int) -> int:
    """Return how many blocks of ``size`` items are needed for ``count`` items."""
    return -(-count // size)
