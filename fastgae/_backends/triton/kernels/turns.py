"""Turns: some steps of all matrices, which a lane reads together, ahead of its computation, and stores together."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import FIRST_COEFFICIENT, FIRST_FLAG, Inputs
from fastgae._backends.triton.kernels.views import joined, offset, split


@jit
def places(views, env, end):
    """Return where ``end`` is in each view: the address in rows, which will move, and the offset in tiles."""
    found = ()
    for k in tl.static_range(len(views)):
        place = ()
        if len(views[k]) > 0:
            place = offset(views[k], env, end)
        if len(views[k]) == 3:
            place = views[k].data + place
        found = found + (place,)
    return found


@jit
def _as_read(number, k: tl.constexpr, how: tl.constexpr):
    """Return what was read from input k in the dtype in which it is used."""
    flag_or_coefficient = number if k < FIRST_COEFFICIENT else number.to(tl.float64)
    return number.to(how.real) if k < FIRST_FLAG else flag_or_coefficient


@jit
def _tile(view, place, before, width: tl.constexpr):
    """Return the addresses of ``width`` steps, the first of which is ``before`` steps before the place."""
    return view.data - before + (place[:, None] + tl.arange(0, width)[None, :])


@jit
def _columns(view, place, done, k: tl.constexpr, i: tl.constexpr, lanes, tiled: tl.constexpr, how: tl.constexpr):
    """Load the tile of which row ``i`` is the first one that is needed, if it is one."""
    most: tl.constexpr = 128 // view.data.dtype.element_ty.primitive_bitwidth  # as many as 16 bytes hold
    width: tl.constexpr = (most if most < how.steps else how.steps) if tiled else 1
    columns = ()
    if i // width * width == i:
        tile = tl.load(_tile(view, place, done + i + width, width), mask=None if lanes is None else lanes[:, None])
        columns = split(_as_read(tile, k, how), how.lanes, width)
    return columns


@jit
def load(inputs, at, done, some, count: tl.constexpr, tiled: tl.constexpr, how: tl.constexpr):
    """Load the ``count`` steps before those that are done: rows, the last step first.

    ``some`` says which lanes are read; or, if they are not tiled, from which of the steps on, and up to which one. None
    is all.
    """
    turn, lanes = (), some
    for _ in tl.static_range(len(inputs)):
        turn = turn + ((),)
    for i in tl.static_range(count):
        loaded, moved = (), ()
        if not (tiled or some is None):
            lanes = (i >= some[0]) & (i < some[1])
        for k in tl.static_range(len(inputs)):
            rows, place = turn[k], at[k]
            if len(inputs[k]) == 3:
                place = place - inputs[k].step
                rows = rows + (_as_read(tl.load(place, mask=lanes), k, how),)
            elif len(inputs[k]) == 2:
                rows = rows + _columns(inputs[k], place, done, k, i, lanes, tiled, how)
            loaded, moved = loaded + (rows,), moved + (place,)
        turn, at = loaded, moved
    return turn, at


@jit
def _store_columns(view, place, rows, done, i: tl.constexpr, lanes, tiled: tl.constexpr, how: tl.constexpr):
    """Store the tile of which row ``i`` is the last one that is computed, if it is one."""
    most: tl.constexpr = 128 // view.data.dtype.element_ty.primitive_bitwidth  # as many as 16 bytes hold
    width: tl.constexpr = (most if most < how.steps else how.steps) if tiled else 1
    if (i + 1) // width * width == i + 1:
        tile = joined(rows, i + 1 - width, how.lanes, width)
        tl.store(_tile(view, place, done + i + 1, width), tile, mask=None if lanes is None else lanes[:, None])


@jit
def store(outputs, to, results, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Store row ``i`` of the results of a turn, or with the last row of a tile all of its rows."""
    moved, lanes = (), some
    if not (tiled or some is None):
        lanes = (i >= some[0]) & (i < some[1])
    for k in tl.static_range(2):
        place = to[k]
        if len(outputs[k]) == 3:
            place = place - outputs[k].step
            tl.store(place, results[k][i], mask=lanes)
        elif len(outputs[k]) == 2:
            _store_columns(outputs[k], place, results[k], done, i, lanes, tiled, how)
        moved = moved + (place,)
    return moved


@jit
def following(inputs, env, first, left, whole, size: tl.constexpr):
    """Return the steps from ``first`` on, the last one first; ``left`` of them exist, and in whole turns all."""
    at = places(inputs, env, tl.cast(first, tl.int64) + size.steps)
    if whole:
        rows, _ = load(inputs, at, 0, None, size.steps, True, size)
    else:
        rows, _ = load(inputs, at, 0, (-left + size.steps, left * 0 + size.steps), size.steps, False, size)
    return Inputs(*rows)
