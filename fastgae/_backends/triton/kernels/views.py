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
    """The size of what a program reads at once. Each field is a ``tl.constexpr``."""

    lanes: Any
    steps: Any


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
def rows_from(view, env, first, left, size: tl.constexpr):
    """Return the steps ``first``, ``first + 1``, ... of each lane; the first ``left`` of them exist."""
    rows = ()
    if len(view) == 2:
        columns = tl.arange(0, size.steps)[None, :]
        tile_at = view.data + (offset(view, env, tl.cast(first, tl.int64))[:, None] + columns)
        backwards = split(tl.load(tile_at, mask=columns < left[:, None], other=0), size)
        for i in tl.static_range(size.steps):
            rows = rows + (backwards[size.steps - 1 - i],)
    elif len(view) == 3:
        at = view.data + offset(view, env, tl.cast(first, tl.int64))
        for i in tl.static_range(size.steps):
            rows = rows + (tl.load(at, mask=i < left, other=0),)
            at = at + view.step
    return rows


@jit
def split(tile, how: tl.constexpr):
    """Return the columns of a tile, the last one first."""
    parts = (tile,)
    for _ in tl.static_range(6):  # 2^6 steps at most
        if len(parts) < how.steps:
            halves = ()
            for i in tl.static_range(len(parts)):
                half = tl.reshape(parts[i], (how.lanes, 2, how.steps // len(parts) // 2))
                earlier, later = tl.split(tl.permute(half, (0, 2, 1)))
                halves = halves + (later, earlier)
            parts = halves
    columns = ()
    for i in tl.static_range(how.steps):
        columns = columns + (tl.reshape(parts[i], (how.lanes,)),)
    return columns


@jit
def joined(columns, how: tl.constexpr):
    """Return the tile of some columns, the inverse of ``split``."""
    parts = ()
    for i in tl.static_range(how.steps):
        parts = parts + (tl.reshape(columns[i], (how.lanes, 1)),)
    for _ in tl.static_range(6):
        if len(parts) > 1:
            wholes = ()
            for i in tl.static_range(len(parts) // 2):
                both = tl.permute(tl.join(parts[2 * i + 1], parts[2 * i]), (0, 2, 1))
                wholes = wholes + (tl.reshape(both, (how.lanes, 2 * how.steps // len(parts))),)
            parts = wholes
    return parts[0]
