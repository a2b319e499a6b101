"""Tensors as the (T, N) matrices that kernels read and write."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fastgae._backends.triton.kernels import View
from fastgae._call import NEW, WORKING_DTYPES
from fastgae._interop import OnDevice

TORCH_DTYPES = {dtype: getattr(torch, dtype.name) for dtype in WORKING_DTYPES}


class Matrices(NamedTuple):
    """The conversion of a call's arrays to matrices, with any strides: only envs that do not merge are copied."""

    rewards: torch.Tensor  # the first argument
    dtype: torch.dtype  # the working dtype
    time_axis: int
    steps: int
    envs: int
    env_major: bool  # the steps of an env are contiguous in rewards, and the envs are not

    @classmethod
    def of(cls, rewards: OnDevice, time_axis: int) -> "Matrices":
        shape, strides = rewards.shape, rewards.array.stride()
        steps, envs = shape[time_axis], math.prod(shape[:time_axis] + shape[time_axis + 1 :])
        others = strides[:time_axis] + strides[time_axis + 1 :]
        env_major = steps > 1 and strides[time_axis] == 1 and (envs == 1 or 1 not in others)
        return cls(rewards.array, TORCH_DTYPES.get(rewards.dtype, torch.float64), time_axis, steps, envs, env_major)

    def matrix(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as (T, N): a view where its strides allow it, or else a copy."""
        moved = self._time_first(tensor)
        return moved if moved.ndim == 2 else moved.reshape(moved.shape[0], self.envs)

    def _time_first(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.movedim(self.time_axis, 0) if self.time_axis else tensor

    def split(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return a matrix in the shape of rewards."""
        shape = list(self.rewards.shape)
        shape.insert(0, shape.pop(self.time_axis))
        return matrix.reshape(shape).movedim(0, self.time_axis)

    def of_steps(self, array: OnDevice | None) -> View | None:
        return None if array is None else view_of(self.matrix(_stored(array.array)))

    def of_envs(self, array: Any, dtype: torch.dtype | None = None) -> View | None:
        """Return the view of one number per env, or of one for all. A NumPy number is not on the device yet."""
        if array is None:
            return None
        if not isinstance(array, OnDevice):
            return row_of(self.rewards.new_full((1,), array.item(), dtype=dtype or self.dtype))
        return row_of(_stored(array.array).reshape(-1))

    def of_coefficients(self, given: Any) -> tuple[View | None, float]:
        """Return the view of an array of coefficients, or the number if it is one; 0 for None."""
        if isinstance(given, OnDevice):
            array = _stored(given.array)
            if array.ndim > self.rewards.ndim:  # (sequences, 1): one per packed sequence
                return row_of(array[:, 0]), 0.0
            return view_of(self.matrix(array.expand(self.rewards.shape))), 0.0
        return None, 0.0 if given is None else float(np.asarray(given).item())

    def empty(self, dtype: torch.dtype) -> torch.Tensor:
        """Return a new matrix in the memory order of rewards."""
        if self.env_major:
            return self.rewards.new_empty((self.envs, self.steps), dtype=dtype).T
        return self.rewards.new_empty((self.steps, self.envs), dtype=dtype)

    def output(self, wanted: Any, inputs: Sequence[OnDevice]) -> "Output | None":
        """Return the output that is wanted: None, NEW, or the caller's tensor."""
        if wanted is None:
            return None
        result = torch.empty_like(self.rewards, dtype=self.dtype) if wanted is NEW else wanted.array
        overlaps = any(_storage(result) == _storage(each.array) for each in inputs)
        moved = self._time_first(result)
        if overlaps or (moved.ndim > 2 and not _merges(moved)):
            return Output(result, self.empty(self.dtype), False)
        return Output(result, self.matrix(result), True)


class Output(NamedTuple):
    """A result, and the matrix that a kernel fills: the result's own memory, or memory to copy from."""

    result: torch.Tensor
    matrix: torch.Tensor
    in_place: bool

    def finished(self, matrices: Matrices) -> torch.Tensor:
        return self.result if self.in_place else self.result.copy_(matrices.split(self.matrix))


def view_of(matrix: torch.Tensor) -> View:
    """Return the view of a matrix. All packed sequences read the only env."""
    return View(matrix, matrix.stride(0), matrix.stride(1) if matrix.shape[1] > 1 else 0)


def row_of(row: torch.Tensor) -> View:
    """Return the view of one row for all steps. All envs read its only number, if it has one."""
    return View(row, 0, row.stride(0) if len(row) > 1 else 0)


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return flags as bytes, because any byte but 0 is True."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _storage(tensor: torch.Tensor) -> int:
    pointer: int = tensor.untyped_storage().data_ptr()
    return pointer


def _merges(moved: torch.Tensor) -> bool:
    """Return whether all axes but the first can be read as one axis with one stride."""
    axes = [(stride, n) for stride, n in zip(moved.stride()[1:], moved.shape[1:], strict=True) if n != 1]
    return all(outer == inner * n for (outer, _), (inner, n) in itertools.pairwise(axes))
