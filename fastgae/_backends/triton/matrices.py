"""Tensors as the (T, N) matrices that kernels read and write."""

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from fastgae._backends.triton.kernels.views import Rows, Tiles
from fastgae._backends.triton.plan import Memory, Plan, Strided
from fastgae._call import NEW, WORKING_DTYPES
from fastgae._interop.arrays import OnDevice, Planned
from fastgae._interop.torch_devices import overlap

MOST_STEPS = 2**31 - 2**10  # kernels count steps in 32 bits, and read whole turns
TORCH_DTYPES = {dtype: getattr(torch, dtype.name) for dtype in WORKING_DTYPES}


class Matrices(NamedTuple):
    """The conversion of a call's arrays to matrices, with any strides: only envs that do not merge are copied."""

    plan: Plan
    rewards: torch.Tensor  # the first argument
    dtype: torch.dtype  # the working dtype
    time_axis: int
    steps: int
    envs: int
    env_major: bool  # the steps of an env are adjacent in rewards, and the envs are not

    @classmethod
    def of(cls, rewards: OnDevice, time_axis: int) -> "Matrices":
        tensor = rewards.array
        shape, strides = rewards.shape, tensor.stride()
        steps, envs = shape[time_axis], math.prod(shape[:time_axis] + shape[time_axis + 1 :])
        if steps > MOST_STEPS:
            raise ValueError(
                f"time_axis={time_axis} has {steps:,} steps, and a GPU computes at most {MOST_STEPS:,} together: split "
                "the tensors over time, or pass them on the CPU"
            )
        others = strides[:time_axis] + strides[time_axis + 1 :]
        env_major = steps > 1 and strides[time_axis] == 1 and (envs == 1 or 1 not in others)
        dtype = TORCH_DTYPES.get(rewards.dtype, torch.float64)
        return cls(Plan(tensor.device), tensor, dtype, time_axis, steps, envs, env_major)

    def of_steps(self, array: OnDevice | None) -> Any:
        return () if array is None else self.view(self.matrix(array))

    def of_envs(self, array: Any) -> tuple[Any, float]:
        """Return the view of one number per env, and 0; or no view, and one number for all."""
        if not isinstance(array, OnDevice):
            return (), 0.0 if array is None else float(array)
        return self.row(self._merged(array, array.array.unsqueeze(0))), 0.0

    def of_coefficients(self, given: Any) -> tuple[Any, float]:
        """Return the view of an array of coefficients, and 0; or no view, and the number if it is one."""
        if not isinstance(given, OnDevice):
            return (), 0.0 if given is None else float(np.asarray(given).item())
        array = given.array
        if array.ndim > self.rewards.ndim:  # (sequences, 1): one per packed sequence
            return self.row(self._merged(given, array.mT)), 0.0
        return self.view(self._merged(given, self._time_first(array.expand(self.rewards.shape)))), 0.0

    def matrix(self, array: OnDevice) -> Strided:
        """Return an array as (T, N): its own memory where its strides allow it, or else a copy."""
        return self._merged(array, self._time_first(array.array))

    def view(self, matrix: Strided) -> Any:
        """Return the view of a matrix. All packed sequences read the only env."""
        step, env = matrix.stride
        env = env if matrix.shape[1] > 1 else 0
        return Tiles(matrix.memory, env) if self.env_major and step == 1 else Rows(matrix.memory, step, env)

    def strided(self, view: Any) -> Strided:
        """Return the matrix of a view, of all steps."""
        step = 1 if isinstance(view, Tiles) else view.step
        return Strided(view.data, (self.steps, self.envs), (step, view.env))

    def row(self, matrix: Strided) -> Rows:
        """Return the view of the last row, for all steps. All envs read its only number, if it has one."""
        (steps, envs), (step, env) = matrix.shape, matrix.stride
        memory = matrix.memory._replace(first=matrix.memory.first + (steps - 1) * step)
        return Rows(memory, 0, env if envs > 1 else 0)

    def new(self, dtype: torch.dtype) -> Strided:
        """Return a new matrix in the memory order of rewards."""
        shape = self.steps, self.envs
        stride = (1, self.steps) if self.env_major else (self.envs, 1)
        return Strided(self.plan.memory(shape, stride, dtype), shape, stride)

    def output(self, wanted: Any, inputs: Iterable[OnDevice], dtype: torch.dtype | None = None) -> "Output | None":
        """Return the output that is wanted: None, NEW, or the caller's tensor."""
        if wanted is None:
            return None
        if wanted is NEW:
            like = torch.empty_like(self.rewards, dtype=dtype or self.dtype, device="meta")
            memory = self.plan.memory(like.shape, like.stride(), like.dtype)
        else:
            like, memory = wanted.array, Memory(wanted.slot, 0, wanted.array.dtype)
        moved = self._time_first(like)
        result = Strided(memory, tuple(moved.shape), moved.stride())
        if not _merges(moved) or (wanted is not NEW and any(overlap(like, each.array) for each in inputs)):
            return Output(result, self.new(self.dtype), False)
        matrix = moved.reshape(self.steps, self.envs)
        return Output(result, Strided(memory, (self.steps, self.envs), matrix.stride()), True)

    def finished(self, output: "Output | None") -> Any:
        """Return what stands for a result until the plan is run."""
        if output is None:
            return None
        result, matrix, in_place = output
        if not in_place:
            meta = torch.empty_strided(matrix.shape, matrix.stride, device="meta")
            split = meta.unflatten(1, result.shape[1:] or (1,))
            source = Strided(matrix.memory, result.shape, split.stride()[: len(result.shape)])
            self.plan.call(torch.Tensor.copy_, result, source)
        return Planned(self.plan, result.memory.slot)

    def _time_first(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.movedim(self.time_axis, 0) if self.time_axis else tensor

    def _merged(self, array: OnDevice, moved: torch.Tensor) -> Strided:
        """Return a view of an array, in which time comes first, as a matrix."""
        memory = Memory(array.slot, 0, torch.uint8 if moved.dtype == torch.bool else moved.dtype)
        if not _merges(moved):
            whole = Strided(memory, tuple(moved.shape), moved.stride())
            moved = torch.empty(moved.shape, device="meta", dtype=moved.dtype)
            memory = self.plan.memory(moved.shape, moved.stride(), memory.dtype)
            self.plan.call(torch.Tensor.copy_, Strided(memory, tuple(moved.shape), moved.stride()), whole)
        matrix = moved.reshape(len(moved), -1)
        return Strided(memory, (len(matrix), matrix.shape[1]), matrix.stride())


class Output(NamedTuple):
    """A result, time first, and the matrix that a kernel fills: the result's own memory, or memory to copy from."""

    result: Strided
    matrix: Strided
    in_place: bool


def _merges(moved: torch.Tensor) -> bool:
    """Return whether all axes but the first can be read as one axis with one stride."""
    axes = [(stride, n) for stride, n in zip(moved.stride()[1:], moved.shape[1:], strict=True) if n != 1]
    return all(outer == inner * n for (outer, _), (inner, n) in itertools.pairwise(axes))
