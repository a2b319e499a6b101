"""Turns: some steps of all matrices, which a warp reads together, ahead of its computation, and stores together."""

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
def _tiles(view, place, done, alive, how: tl.constexpr):
    """Load the steps of a turn as tiles, the last one first: (steps, lanes) of rows, and (lanes, steps) of tiles."""
    # Half as many flags, because Triton would read tiles of one shape in the same way.
    flags: tl.constexpr = view.data.dtype.element_ty.primitive_bitwidth == 8
    width: tl.constexpr = (how.steps + 1) // 2 if flags else how.steps
    tiles = ()
    for i in tl.static_range(how.steps // width):
        if len(view) == 3:
            before = done + (i + 1) * width - tl.arange(0, width)
            at, mask = place[None, :] - before[:, None] * tl.cast(view.step, tl.int64), alive[None, :]
        else:
            at, mask = _tile(view, place, done + (i + 1) * width, width), alive[:, None]
        tiles = tiles + (tl.load(at, mask=mask),)
    return tiles


@jit
def load_turn(inputs, at, done, alive, how: tl.constexpr):
    """Load the steps of a turn before those that are done, as tiles, for the lanes that are alive."""
    turn = ()
    for k in tl.static_range(len(inputs)):
        tiles = ()
        if len(inputs[k]) > 0:
            tiles = _tiles(inputs[k], at[k], done, alive, how)
        turn = turn + (tiles,)
    return turn


@jit
def rows_of_turn(inputs, turn, how: tl.constexpr):
    """Return the rows of what was loaded, the last step first. Tiles are split here, because that waits for them."""
    found = ()
    for k in tl.static_range(len(inputs)):
        rows = ()
        for i in tl.static_range(len(turn[k])):
            tile = _as_read(turn[k][i], k, how)
            if len(inputs[k]) == 3:
                rows = rows + split(tl.trans(tile), how.lanes, tile.shape[0])
            else:
                rows = rows + split(tile, how.lanes, tile.shape[1])
        found = found + (rows,)
    return found


@jit
def load_rows(inputs, at, first, last, count: tl.constexpr, how: tl.constexpr):
    """Load ``count`` steps before the places, the last step first; of each lane those from ``first`` to ``last``."""
    turn = ()
    for k in tl.static_range(len(inputs)):
        rows = ()
        for i in tl.static_range(count if len(inputs[k]) > 0 else 0):
            if len(inputs[k]) == 3:
                place = at[k] - (i + 1) * tl.cast(inputs[k].step, tl.int64)
            else:
                place = inputs[k].data + (at[k] - (i + 1))
            rows = rows + (_as_read(tl.load(place, mask=(i >= first) & (i < last)), k, how),)
        turn = turn + (rows,)
    return turn


@jit
def _store_columns(view, place, rows, done, i: tl.constexpr, lanes, tiled: tl.constexpr, how: tl.constexpr):
    """Store the tile of which row ``i`` is the last one that is computed, if it is one."""
    most: tl.constexpr = (how.steps + 1) // 2 if view.data.dtype.element_ty.primitive_bitwidth == 8 else how.steps
    width: tl.constexpr = most if tiled else 1
    if (i + 1) // width * width == i + 1:
        tile = joined(rows[i + 1 - width : i + 1], how.lanes)
        tl.store(_tile(view, place, done + i + 1, width), tile, mask=lanes[:, None])


@jit
def store(outputs, to, results, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Store row ``i`` of the results of a turn, or with the last row of a tile all of its rows."""
    moved, lanes = (), some
    if not tiled:
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
        rows = rows_of_turn(inputs, load_turn(inputs, at, 0, left > 0, size), size)
    else:
        rows = load_rows(inputs, at, -left + size.steps, left * 0 + size.steps, size.steps, size)
    return Inputs(*rows)
