"""The recursion: one row that both layouts compute.

    delta = (r + gamma V') - V     V' left out where terminated
    A     = delta + gl A_next      A_next left out where terminated or truncated
    R     = A + V

A row is a run of contiguous numbers. Time-major, it has the envs of one step, and finds A_next in the row that was
computed before it. Env-major, it has steps of one env, and their A_next are not known yet. So the recursion alone is
computed before the row, for envs side by side, in squares that ``transpose`` turns.

Options are gates and factors of the same row. Some calls have a second recursion: D = 1 + lambda D_next if
tail-normalized, where A = G / D and G = D delta + gl G_next; or A' = delta + gl' A'_next if the returns have their own
lambda. A field that is None takes no time, because LLVM removes what depends on it; so a kernel is compiled for the
fields that a call has. All kernels with options have a mask, coefficients in arrays, and A_T.
"""

from typing import Any, NamedTuple

import numpy as np

from fastgae._backends.numba.language import (
    SIDE,
    at,
    element,
    if_given,
    inner,
    keep,
    restrict,
    transpose,
    views,
    words_of,
)
from fastgae._call import CONSTANTS
from fastgae._canonical import CanonicalRollout

# Steps of a row of one env. From memory, long rows of few pages win: 1024 x 16384 float32 runs at 0.22, 0.25, 0.35,
# 0.44 and 0.45 G steps/s with 64, 128, 256, 512 and 1024; in cache they are equal.
STEPS = 512
LINE = STEPS + SIDE  # of working memory: a row, and the number after it; not a power of two, because of cache sets
LANES = SIDE  # envs that are computed side by side
# Up to this many envs, one recursion after the other is used instead of squares that are mostly empty.
FEW = 2
# Envs of one step that are computed before those beside them, so that a row finds the next row's results in the
# second-level cache. Plain 16 x 1M float32 takes 1.8 times as long as np.add with 4 K, 16 K or 64 K of them, and 2.5
# times in whole rows. With options, a row also has lines of working memory.
ENVS, ENVS_WITH_OPTIONS = 16 * 1024, 2 * 1024

TIME, ENV = range(2)  # the axis of a row
OPEN, CLOSED, SKIPPED = range(3)  # gates, one byte each
WORD = 4  # gates that are read as one number
CLOSES, SKIPS = [tuple([np.uint32(bits << 8 * i) for i in range(WORD)]) for bits in (0xFF, SKIPPED)]
RHO_CLIP, C_CLIP, ADVANTAGE_CLIP, LEAKY = map(CONSTANTS.index, ("rho_clip", "c_clip", "advantage_clip", "leaky"))
GAMMA, GAMMA_LAMBDA, SECOND_LAMBDA, NEXT_VALUES, UNWANTED, UNWANTED_TOO, LINES = range(7)  # lines of working memory
A, SECOND, VALUE = range(3)  # what a row hands on to the row before


class Row(NamedTuple):
    """The addresses of a row. What a call does not have is None, or a number that stands for all and has no effect."""

    rewards: Any
    values: Any
    next_values: Any
    terminated: Any
    truncated: Any
    gamma: Any
    gamma_lambda: Any
    second_lambda: Any  # of D or A'
    is_tail: Any  # not None: the second recursion is D
    mask: Any
    carry_over: Any
    ratios: Any
    constants: Any
    one: Any


@inner()
def _weight(row, i, clip):
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; NaN stays NaN, and a zero keeps its sign."""
    ratio, most, leaky = row.ratios[i], row.constants[clip], row.constants[LEAKY]
    clipped = most if ratio > most else ratio
    return clipped if leaky == 0 else (row.one - leaky) * clipped + leaky * ratio


@inner()
def _weighted(ratios, number, row, i, clip):
    if ratios is None:
        return number
    return _weight(row, i, clip) * number


@inner()
def _exists(row, i):
    return element(row.mask, i) != 0


@inner()
def _is_closed(row, i):
    return (row.terminated[i] | row.truncated[i]) != 0


@inner()
def _delta(row, i):
    """Return delta = (r + gamma V') - V, without gamma V' where terminated.

    Both sides of a gate are computed and one is selected: LLVM vectorises that, and a gate never multiplies anything.
    """
    reward = row.rewards[i]
    bootstrapped = reward + element(row.gamma, i) * row.next_values[i]
    return (reward if row.terminated[i] != 0 else bootstrapped) - row.values[i]


@inner()
def _term(row, i, second):
    """Return the x of A: delta, D delta, or rho delta."""
    return _weighted(row.ratios, if_given(row.is_tail, row.one, second) * _delta(row, i), row, i, RHO_CLIP)


@inner()
def _decay(row, i):
    """Return the decay of A: gl, or c gl."""
    return _weighted(row.ratios, element(row.gamma_lambda, i), row, i, C_CLIP)


@inner()
def _second_term(row, i):
    return if_given(row.is_tail, _delta(row, i), row.one)


@inner()
def _traced(term, decay, following, closed, exists):
    """Return y = x + decay y_next, x where the gate is closed, and y_next where the step is skipped."""
    traced = term + decay * following
    existing = term if closed else traced
    return existing if exists else following


@inner()
def _policy(ratios, advantage, row, i, following):
    """Return V-trace's rho (delta + gl A_next) if there are importance ratios, and A otherwise."""
    if ratios is None:
        return advantage
    traced = _traced(_delta(row, i), element(row.gamma_lambda, i), following, _is_closed(row, i), True)
    return traced * _weight(row, i, ADVANTAGE_CLIP)


@inner(error_model="numpy")  # Python's error model would raise on a division by 0
def _write(row, i, y, y_next, second, advantages, returns):
    """Write the results of a step. If it is skipped, A = 0 and R = V."""
    value, shown = row.values[i], _exists(row, i) | row.carry_over
    advantage = y / if_given(row.is_tail, row.one, second)
    total = if_given(row.second_lambda, advantage, if_given(row.is_tail, second, advantage)) + value
    result = _policy(row.ratios, advantage, row, i, y_next)
    advantages[i] = result if shown else 0
    returns[i] = total if shown else value


@inner()
def _second(second_lambda, row, i, following, handed_on):
    """Return D or A' of a step, and hand it on; 1 if the call has neither."""
    if second_lambda is None:
        return row.one
    decay, closed, exists = element(second_lambda, i), _is_closed(row, i), _exists(row, i)
    handed_on[i] = _traced(_second_term(row, i), decay, following[i], closed, exists)
    return handed_on[i]


@inner()
def _hand_on(has_options, i, y, handed_on):
    """Hand y on to the row before. Without options, it finds y in the advantages."""
    if has_options is not None:
        handed_on[i] = y


@inner(forceinline=True)
def _row(size, row, has_options, following, handed_on, second_following, second_handed_on, advantages, returns):
    restrict()
    for i in range(size):
        y_next = following[i]
        second = _second(row.second_lambda, row, i, second_following, second_handed_on)
        y = _traced(_term(row, i, second), _decay(row, i), y_next, _is_closed(row, i), _exists(row, i))
        _hand_on(has_options, i, y, handed_on)
        _write(row, i, y, y_next, second, advantages, returns)


@inner()
def _copy(size, source, target):
    restrict()
    for i in range(size):
        target[i] = source[i]


@inner()
def _fill(size, number, line):
    for i in range(size):
        line[i] = number


@inner()
def _choose(size, gates, wanted, otherwise, chosen):
    """Write ``wanted`` where a gate is not 0, and ``otherwise`` elsewhere.

    Both are loaded before one is chosen, because LLVM vectorises only that.
    """
    restrict()
    for i in range(size):
        one, other = wanted[i], otherwise[i]
        chosen[i] = one if gates[i] != 0 else other


@inner(forceinline=True)
def _final(size, t, n, given, next_values, line):
    """Return the address of V': in the line if final values take the place of some."""
    if not given.final_values.steps:
        return next_values
    _choose(size, at(given.truncated, t, n), at(given.final_values, t, n), next_values, line)
    return line


@inner()
def _prepare(field, size, line):
    """Fill the line of a field that is one number for all steps and envs."""
    if field is None:
        return
    if field.step_stride == field.env_stride == 0:
        _fill(size, field.first[0], line)


@inner()
def _prepare_all(mask, given, size, lines, flags):
    if mask is not None:
        _prepare(given.gamma, size, at(lines, GAMMA, 0))
        _prepare(given.gamma_lambda, size, at(lines, GAMMA_LAMBDA, 0))
        _prepare(_second_lambda(given), size, at(lines, SECOND_LAMBDA, 0))
        _prepare(given.mask, size, at(flags, 0, 0))


@inner()
def _along(mask, field, t, n, axis, size, line):
    """Return the address of the numbers of a row: the line, where the field has no stride along the row.

    Without options, a coefficient is a number.
    """
    absent = if_given(field, field, line)
    if mask is None:
        return if_given(mask, field, absent)
    if field is None:
        return absent
    stride, across = field.step_stride, field.env_stride
    if axis == ENV:
        stride, across = across, stride
    if stride == 1:
        return at(field, t, n)
    if stride != 0 or across != 0:  # along an axis of one, an array may have any stride
        _fill(size, at(field, t, n)[0], line)
    return line


@inner(forceinline=True)
def _second_lambda(given):
    return if_given(given.tail_lambda, given.returns_gamma_lambda, given.tail_lambda)


@inner(forceinline=True)
def _row_at(t, n, axis, size, given, next_values, lines, flags, one):
    """Return the addresses of the row that begins at step t of env n."""
    terminated = at(given.terminated, t, n)
    return Row(
        at(given.rewards, t, n), at(given.values, t, n), next_values, terminated,
        at(given.truncated, t, n) if given.truncated.steps else terminated,
        _along(given.mask, given.gamma, t, n, axis, size, at(lines, GAMMA, 0)),
        _along(given.mask, given.gamma_lambda, t, n, axis, size, at(lines, GAMMA_LAMBDA, 0)),
        _along(given.mask, _second_lambda(given), t, n, axis, size, at(lines, SECOND_LAMBDA, 0)),
        given.tail_lambda,
        if_given(given.mask, 1, _along(given.mask, given.mask, t, n, axis, size, at(flags, 0, 0))),
        given.carry_over, at(given.ratios, t, n), at(given.constants, 0, 0), one,
    )  # fmt: skip


@inner(forceinline=True)
def _output(matrix, t, n, unwanted):
    return at(matrix, t, n) if matrix.steps else unwanted


@inner()
def _begin(given_last, first, size, line):
    """Write what follows the last step."""
    if given_last is not None:
        _copy(size, at(given_last, 0, first), line)


@inner()
def _pass_row(mask, t, n, size, values, passed, line):
    """Write V of the next step that exists, for each env."""
    if mask is not None:
        _choose(size, at(mask, t, n), values, passed, line)


@inner()
def _envs_at_a_time(mask):
    if mask is None:
        return ENVS
    return ENVS_WITH_OPTIONS


def time_major(first, last, arguments):
    """Compute row by row, from the last. What a row hands on is in two lines that take turns."""
    given = views(CanonicalRollout, arguments)
    steps, dtype = given.rewards.steps, arguments[0].dtype
    width = min(_envs_at_a_time(given.mask), last - first)
    handed_on = np.empty((6, width), dtype)
    lines, flags = np.empty((LINES, width), dtype), np.empty((1, width), np.uint8)
    unwanted, unwanted_too = at(lines, UNWANTED, 0), at(lines, UNWANTED_TOO, 0)
    _prepare_all(given.mask, given, width, lines, flags)
    for left in range(first, last, width):
        size = min(width, last - left)
        _fill(size, 0, at(handed_on, steps & 1, 0))
        _fill(size, 0, at(handed_on, 2 + (steps & 1), 0))
        _begin(given.last_advantages, left, size, at(handed_on, steps & 1, 0))
        _begin(given.last_values, left, size, at(handed_on, 4 + (steps - 1 & 1), 0))
        following = at(handed_on, steps & 1, 0)
        for t in range(steps - 1, -1, -1):
            this, other = t & 1, t + 1 & 1
            next_values = at(handed_on, 4 + this, 0)
            if t + 1 < steps:
                values = at(given.next_values, t, left)
                if given.mask_passes_values:
                    _pass_row(given.mask, t + 1, left, size, values, at(handed_on, 4 + other, 0), next_values)
                else:
                    next_values = values
            next_values = _final(size, t, left, given, next_values, at(lines, NEXT_VALUES, 0))
            row = _row_at(t, left, ENV, size, given, next_values, lines, flags, dtype.type(1))
            y = at(handed_on, this, 0)
            advantages = _output(given.advantages, t, left, if_given(given.mask, y, unwanted))
            returns = _output(given.returns, t, left, unwanted_too)
            _row(
                size, row, given.mask, following, y, at(handed_on, 2 + other, 0), at(handed_on, 2 + this, 0),
                advantages, returns,
            )  # fmt: skip
            following = if_given(given.mask, advantages, y)
    keep(handed_on, lines, flags)


@inner()
def _pass_line(mask, t, n, size, values, value, line):
    """Write V of the next step that exists, for each step; ``value`` follows the last of them."""
    if mask is not None:
        exists = at(mask, t, n)
        for i in range(size - 1, -1, -1):
            value = values[i] if exists[i] != 0 else value
            line[i] = value


@inner()
def _next_line(lane, t, left, size, given, next_lines, lines, carried):
    """Write V' of the steps of one env to a line; ``carried`` holds the V' of the step after them."""
    n, line, following = left + lane, at(next_lines, lane, 0), at(carried, VALUE, lane)
    target = at(lines, NEXT_VALUES, 0) if given.final_values.steps else line
    values, known = at(given.next_values, t, n), size
    if t + size == given.rewards.steps:
        known -= 1
        following[0] = target[known] = at(given.last_values, 0, n)[0]
    if given.mask_passes_values:
        _pass_line(given.mask, t + 1, n, known, values, following[0], target)
        following[0] = target[0]
    else:
        _copy(known, values, target)
    _final(size, t, n, given, target, line)


@inner(forceinline=True)
def _terms(size, row, seconds, terms, decays, gates):
    """Compute what the recursion of A takes."""
    restrict()
    for i in range(size):
        terms[i] = _term(row, i, element(seconds, i))
        gates[i] = _gate(row, i)
        _put(decays, i, row)


@inner()
def _gate(row, i):
    gate = CLOSED if _is_closed(row, i) else OPEN
    return gate if _exists(row, i) else SKIPPED


@inner()
def _put(decays, i, row):
    if decays is not None:
        decays[i] = _decay(row, i)


@inner()
def _second_terms(size, row, terms, decays, gates):
    """Compute what the second recursion takes."""
    restrict()
    for i in range(size):
        terms[i] = _second_term(row, i)
        gates[i] = _gate(row, i)
        decays[i] = element(row.second_lambda, i)


@inner(forceinline=True)
def _finish(size, row, line, seconds, advantages, returns):
    restrict()
    for i in range(size):
        _write(row, i, line[i], line[i + 1], element(seconds, i), advantages, returns)


@inner()
def _chain(size, decays, gates, line):
    """Compute the recursion of one env in place; the number after the line is the y that follows."""
    following = line[size]
    for t in range(size - 1, -1, -1):
        following = _traced(line[t], element(decays, t), following, gates[t] == CLOSED, gates[t] != SKIPPED)
        line[t] = following


@inner()
def _is_skipped(mask, word, skips):
    if mask is None:
        return False
    return np.uint32(word & skips) != 0


@inner(forceinline=True)
def _steps(terms, decays, words, carried, mask):
    """Compute WORD steps of LANES envs in place."""
    restrict()
    for lane in range(LANES):
        word, y = words[lane], carried[lane]
        for i in range(WORD):
            t = WORD - 1 - i
            closed, skipped = np.uint32(word & CLOSES[t]) != 0, _is_skipped(mask, word, SKIPS[t])
            y = _traced(terms[t * LANES + lane], element(decays, t * LANES + lane), y, closed, not skipped)
            terms[t * LANES + lane] = y
        carried[lane] = y


@inner()
def _turn(decays, lines, start, square):
    if decays is not None:
        transpose(at(lines, 0, start), LINE, square, LANES)


@inner(forceinline=True)
def _scan(size, envs, lines, gamma_lambda, decays, gates, words, squares, carried, mask):
    """Compute a recursion from its terms, in place; ``carried`` holds the y that follow, and then the first y."""
    for lane in range(envs):
        # Squares are filled up with steps that hand on the y that follows, which is also y_next of the last step.
        for i in range(size, size + SIDE - size % SIDE):
            lines[lane, i] = carried[lane]
            gates[lane, i] = CLOSED
    if envs <= FEW:
        for lane in range(envs):
            _chain(size, if_given(mask, gamma_lambda, at(decays, lane, 0)), at(gates, lane, 0), at(lines, lane, 0))
            carried[lane] = lines[lane, 0]
        return
    for i in range(0, (size + WORD - 1) // WORD, SIDE):
        transpose(words_of(at(gates, 0, WORD * i)), LINE // WORD, at(words, i, 0), LANES)
    for start in range((size - 1) // SIDE * SIDE, -1, -SIDE):
        transpose(at(lines, 0, start), LINE, at(squares, 0, 0), LANES)
        _turn(mask, decays, start, at(squares, SIDE, 0))
        for t in range(SIDE - WORD, -1, -WORD):
            decay = if_given(mask, gamma_lambda, at(squares, SIDE + t, 0))
            _steps(at(squares, t, 0), decay, at(words, (start + t) // WORD, 0), carried, mask)
        transpose(at(squares, 0, 0), LANES, at(lines, 0, start), LINE)


@inner(forceinline=True)
def _row_of(lane, t, left, size, is_changed, given, next_lines, lines, flags, one):
    """Return the row of one env; V' is in a line if it is not a part of the caller's array."""
    next_values = at(next_lines, lane, 0) if is_changed else at(given.next_values, t, left + lane)
    return _row_at(t, left + lane, TIME, size, given, next_values, lines, flags, one)


@inner()
def _scan_second(
    second_lambda, t, left, size, envs, is_changed, given, next_lines, lines, flags, one, seconds, decays, gates,
    words, squares, carried,
):  # fmt: skip
    """Compute the recursion of D or A' if the call has one."""
    if second_lambda is not None:
        for lane in range(envs):
            if is_changed:
                _next_line(lane, t, left, size, given, next_lines, lines, carried)
            row = _row_of(lane, t, left, size, is_changed, given, next_lines, lines, flags, one)
            _second_terms(size, row, at(seconds, lane, 0), at(decays, lane, 0), at(gates, lane, 0))
        _scan(
            size, envs, seconds, given.gamma_lambda, decays, gates, words, squares, at(carried, SECOND, 0), given.mask
        )


def env_major(first, last, arguments):
    """Compute the recursion of each row before the row."""
    given = views(CanonicalRollout, arguments)
    steps, dtype = given.rewards.steps, arguments[0].dtype
    second_lambda, one = _second_lambda(given), dtype.type(1)
    lines, flags = np.empty((LINES, LINE), dtype), np.empty((1, LINE), np.uint8)
    traced, seconds = np.empty((LANES, LINE), dtype), np.empty((LANES, LINE), dtype)
    decays, next_lines = np.empty((LANES, LINE), dtype), np.empty((LANES, LINE), dtype)
    gates, words = np.empty((LANES, LINE), np.uint8), np.empty((STEPS // WORD + SIDE, LANES), np.uint32)
    squares, carried = np.empty((2 * SIDE, LANES), dtype), np.empty((3, LANES), dtype)
    unwanted, unwanted_too = at(lines, UNWANTED, 0), at(lines, UNWANTED_TOO, 0)
    _prepare_all(given.mask, given, STEPS, lines, flags)
    for left in range(first, last, LANES):
        envs = min(LANES, last - left)
        _fill(2 * LANES, 0, at(carried, 0, 0))
        _begin(given.last_advantages, left, envs, at(carried, A, 0))
        for lane in range(envs, LANES):
            _fill(LINE, 0, at(traced, lane, 0))
            _fill(LINE, 0, at(seconds, lane, 0))
            _fill(LINE, 0, at(decays, lane, 0))
        for t in range((steps - 1) // STEPS * STEPS, -1, -STEPS):
            size = min(STEPS, steps - t)
            is_changed = t + size == steps or given.mask_passes_values or given.final_values.steps != 0
            _scan_second(
                second_lambda, t, left, size, envs, is_changed, given, next_lines, lines, flags, one, seconds, decays,
                gates, words, squares, carried,
            )  # fmt: skip
            for lane in range(envs):
                if if_given(second_lambda, is_changed, False):
                    _next_line(lane, t, left, size, given, next_lines, lines, carried)
                row = _row_of(lane, t, left, size, is_changed, given, next_lines, lines, flags, one)
                _terms(
                    size, row, if_given(second_lambda, one, at(seconds, lane, 0)), at(traced, lane, 0),
                    if_given(given.mask, None, at(decays, lane, 0)), at(gates, lane, 0),
                )  # fmt: skip
            _scan(
                size, envs, traced, given.gamma_lambda, decays, gates, words, squares, at(carried, A, 0),
                given.mask,
            )  # fmt: skip
            for lane in range(envs):
                row = _row_of(lane, t, left, size, is_changed, given, next_lines, lines, flags, one)
                _finish(
                    size, row, at(traced, lane, 0), if_given(second_lambda, one, at(seconds, lane, 0)),
                    _output(given.advantages, t, left + lane, unwanted),
                    _output(given.returns, t, left + lane, unwanted_too),
                )  # fmt: skip
    keep(lines, flags, traced, seconds, decays, next_lines, gates, words, squares, carried)
