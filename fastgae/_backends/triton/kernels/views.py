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
    parts = (tile,)
    for _ in tl.static_range(6):  # 2^6 columns at most
        if len(parts) < width:
            even, odd = (), ()
            for i in tl.static_range(len(parts)):
                one, other = tl.split(tl.reshape(parts[i], (lanes, width // len(parts) // 2, 2)))
                even, odd = even + (one,), odd + (other,)
            parts = odd + even
    columns = ()
    for i in tl.static_range(width):
        columns = columns + (tl.reshape(parts[i], (lanes,)),)
    return columns


@jit
def joined(columns, first: tl.constexpr, lanes: tl.constexpr, width: tl.constexpr):
    """Return the tile of some columns, the inverse of ``split``."""
    parts = ()
    for i in tl.static_range(width):
        parts = parts + (tl.reshape(columns[first + i], (lanes, 1)),)
    for _ in tl.static_range(6):
        if len(parts) > 1:
            wholes = ()
            for i in tl.static_range(len(parts) // 2):
                both = tl.join(parts[len(parts) // 2 + i], parts[i])
                wholes = wholes + (tl.reshape(both, (lanes, 2 * width // len(parts))),)
            parts = wholes
    return parts[0]
