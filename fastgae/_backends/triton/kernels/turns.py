"""Turns: some steps of all matrices, which a lane reads together, ahead of its computation, and stores together."""

import triton.language as tl
from triton import jit

from fastgae._backends.triton.kernels.step import FIRST_COEFFICIENT, FIRST_FLAG
from fastgae._backends.triton.kernels.views import joined, offset, split


@jit
def _step_of(view):
    return view.step if len(view) == 3 else 1


@jit
def places(views, env, end, tiled: tl.constexpr):
    """Return where ``end`` is in each view: offsets in tiles, if they are read, and addresses in rows, which will move.

    A view has three fields if it has rows, two if it has tiles, and none if it is missing.
    """
    found = ()
    for k in tl.static_range(len(views)):
        place = ()
        if len(views[k]) > 0:
            place = offset(views[k], env, end)
        if len(views[k]) > 1 + tiled:
            place = views[k].data + place
        found = found + (place,)
    return found


@jit
def empty(views):
    turn = ()
    for _ in tl.static_range(len(views)):
        turn = turn + ((),)
    return turn


@jit
def _as_read(number, k: tl.constexpr, how: tl.constexpr):
    """Return what was read from input k in the dtype in which it is used."""
    flag_or_coefficient = number if k < FIRST_COEFFICIENT else number.to(tl.float64)
    return number.to(how.real) if k < FIRST_FLAG else flag_or_coefficient


@jit
def _tile(view, place, done, how: tl.constexpr):
    """Return the addresses of the turn that begins ``done`` steps before the end."""
    return view.data - (done + how.steps) + (place[:, None] + tl.arange(0, how.steps)[None, :])


@jit
def load(inputs, at, turn, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Load row ``i`` of the turn that begins ``done`` steps before the end, and its tiles together with row 0."""
    loaded, moved = (), ()
    for k in tl.static_range(len(inputs)):
        part, place = turn[k], at[k]
        if len(inputs[k]) > 1 + tiled:
            place = place - _step_of(inputs[k])
            part = part + (_as_read(tl.load(place, mask=some), k, how),)
        elif (len(inputs[k]) == 2) and (i == 0):
            part = (_as_read(tl.load(_tile(inputs[k], place, done, how), mask=some[:, None]), k, how),)
        loaded, moved = loaded + (part,), moved + (place,)
    return loaded, moved


@jit
def rows_of(inputs, turn, how: tl.constexpr):
    """Return the rows of a turn, the last step first."""
    rows = ()
    for k in tl.static_range(len(inputs)):
        if len(inputs[k]) == 2:
            rows = rows + (split(turn[k][0], how),)
        else:
            rows = rows + (turn[k],)
    return rows


@jit
def store(outputs, to, results, done, i: tl.constexpr, some, tiled: tl.constexpr, how: tl.constexpr):
    """Store row ``i`` of a turn, and its tiles together with its first step, for some lanes; None is all lanes."""
    moved = ()
    for k in tl.static_range(2):
        place = to[k]
        if len(outputs[k]) > 1 + tiled:
            place = place - _step_of(outputs[k])
            tl.store(place, results[k][i], mask=some)
        elif (len(outputs[k]) == 2) and (i == how.steps - 1):
            lanes = None if some is None else some[:, None]
            tl.store(_tile(outputs[k], place, done, how), joined(results[k], how), mask=lanes)
        moved = moved + (place,)
    return moved
