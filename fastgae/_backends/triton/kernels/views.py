"""Matrices in the memory of the GPU, and how kernels read steps of them."""

from typing import Any, NamedTuple

import triton.language as tl
from triton import jit


class Rows(NamedTuple):
    """A (T, N) matrix on the device. Strides count elements; a row without time has a step of 0."""

    data: Any  # the tensor of its first element
    step: Any  # the distance from step t to t + 1
    env: Any  # the distance from env n to n + 1


class Tiles(NamedTuple):
    """A (T, N) matrix in which the steps of an env are adjacent."""

    data: Any
    env: Any


class Size(NamedTuple):
    """The size of what a program reads at once, and the dtype of its numbers. Each field is a ``tl.constexpr``."""

    lanes: Any
    steps: Any
    real: Any


@jit
def offset(view, env, t):
    """Return how far step t of an env is from the first element."""
    return env * view.env + (t * tl.cast(view.step, tl.int64) if len(view) == 3 else t)


@jit
def row(view, env, t):
    """Return step t of each env."""
    return tl.load(view.data + offset(view, env, t))


@jit
def row_or_number(view, env, number, real: tl.constexpr):
    """Return one number for each env."""
    given = tl.full(env.shape, number, tl.float64)
    if len(view) > 0:
        given = tl.load(view.data + env * view.env)
    return given.to(real)


@jit
def split(tile, lanes: tl.constexpr, width: tl.constexpr):
    """Return the columns of a tile, the last one first."""
    columns = ()
    if width == 1:
        columns = (tl.reshape(tile, (lanes,)),)
    else:
        one, other = tl.split(tl.reshape(tile, (lanes, width // 2, 2)))
        even, odd = split(one, lanes, width // 2), split(other, lanes, width // 2)
        for i in tl.static_range(width // 2):
            columns = columns + (odd[i], even[i])
    return columns


@jit
def joined(columns, lanes: tl.constexpr):
    """Return the tile of some columns, the inverse of ``split``."""
    if len(columns) == 1:
        tile = tl.reshape(columns[0], (lanes, 1))
    else:
        both = tl.join(joined(columns[1::2], lanes), joined(columns[::2], lanes))
        tile = tl.reshape(both, (lanes, len(columns)))
    return tile
