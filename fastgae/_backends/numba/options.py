"""Sweep over a rollout with options, run by run: skipped steps, coefficients per step, tails, V-trace."""

import numpy as np
from numba import njit

from fastgae._backends.numba.language import after, at, at_view, keep, restrict, same, views
from fastgae._backends.numba.runs import FEW, LINE, RUN, SWEEP_ENVS, chain_of, choose, copy
from fastgae._backends.numba.squares import LANES, gates_to_bits, scan, steps_of
from fastgae._backends.numba.step import (
    ADVANTAGES,
    ENVS,
    RECURSIONS,
    SCRATCH_LINES,
    SKIPPED,
    STEPS_LEFT,
    TIME,
    Run,
    begin,
    is_wanted,
    prepare,
    recursion_of,
    scanned,
    write_results,
)
from fastgae._canonical import Rollout

# A row hands its y on to the row before, and a run of steps its first y to the run before: one line for each recursion,
# and one more for the V' that skipped steps pass on.
PASSED = len(RECURSIONS)
# Env-major, every recursion has a line for each of LANES envs. The lines of deltas and decays come after those:
DELTAS, DECAYS = len(RECURSIONS), len(RECURSIONS) + 1
PASSED_LINE = SCRATCH_LINES  # one more line of scratch, for the V' of a run


@njit
def _scan(size, terms, decay, gates, following, traced):
    """Compute one row of a recursion."""
    restrict()
    for n in range(size):
        traced[n] = scanned(terms[n], decay[n], following[n], gates[n])


@njit(forceinline=True)
def _row(given, run, traced, following, stride):
    """Compute one run of one row; ``traced`` and ``following`` hold the y of this row and the next."""
    next_values = after(traced, PASSED * stride)
    if run.t + 1 < given.rewards.steps:
        unpassed = at_view(given.next_values, run.t, run.n)
        if given.mask_passes_values:
            exists_next, passed = at_view(given.mask, run.t + 1, run.n), after(following, PASSED * stride)
            choose(run.size, exists_next, unpassed, passed, next_values)
        else:
            next_values = unpassed
    begin(given, run, next_values)
    for recursion in RECURSIONS:
        if is_wanted(given, recursion):
            terms, decay = recursion_of(recursion, given, run, after(traced, STEPS_LEFT * stride))
            offset = recursion * stride
            _scan(run.size, terms, decay, run.gates, after(following, offset), after(traced, offset))
    write_results(given, run, traced, stride, after(following, ADVANTAGES * stride))


def time_major(first, last, arguments):
    """Compute row by row, from the last. The y of a row and of the next one stand in two lines that take turns."""
    given = views(Rollout, arguments)
    dtype, steps = arguments[0].dtype, given.rewards.steps
    width = min(SWEEP_ENVS, last - first)
    handed_on = np.empty((PASSED + 1, 2, width), dtype)
    lines, flags = np.empty((SCRATCH_LINES + 3, LINE), dtype), np.empty((2, LINE), np.uint8)
    deltas, terms, decay, scratch = at(lines, 0, 0), at(lines, 1, 0), at(lines, 2, 0), at(lines, 3, 0)
    gates, all_exist = at(flags, 0, 0), at(flags, 1, 0)
    prepare(given, scratch, all_exist)
    for left in range(first, last, width):
        size = min(width, last - left)
        for n in range(size):
            handed_on[PASSED, steps - 1 & 1, n] = at_view(given.last_values, 0, left + n)[0]
            for recursion in RECURSIONS:
                handed_on[recursion, steps & 1, n] = 0
            if given.last_advantages.steps:
                handed_on[ADVANTAGES, steps & 1, n] = at_view(given.last_advantages, 0, left + n)[0]
        for t in range(steps - 1, -1, -1):
            for right in range(size, 0, -RUN):
                start = max(0, right - RUN)
                run = Run(t, left + start, right - start, ENVS, deltas, gates, terms, decay, scratch, all_exist)
                _row(given, run, at(handed_on, 0, t & 1, start), at(handed_on, 0, t + 1 & 1, start), 2 * width)
    keep(handed_on, lines, flags)


_chain = chain_of(scanned)


@njit
def _pass_values(size, exists_next, next_values, value, passed):
    """Write V of the next step that exists, for each step; return the first step's."""
    for t in range(size - 1, -1, -1):
        value = next_values[t] if exists_next[t] != 0 else value
        passed[t] = value
    return value


@njit(forceinline=True)
def _next_values(given, run, carried, passed):
    """Return the address of a run's V'; ``carried`` holds the first V' of the run after it."""
    next_values = at_view(given.next_values, run.t, run.n)
    known = run.size if run.t + run.size < given.rewards.steps else run.size - 1
    if known < run.size:
        carried[0] = passed[known] = at_view(given.last_values, 0, run.n)[0]
    if given.mask_passes_values:
        carried[0] = _pass_values(known, at_view(given.mask, run.t + 1, run.n), next_values, carried[0], passed)
        return passed
    if known == run.size:
        return next_values
    copy(known, next_values, passed)
    return passed


@njit
def _scan_lines(envs, size, squares, carried, gates, words, decays, lines):
    """Compute a recursion from x to y in place; ``carried`` holds the y after the run, and then the first y."""
    for lane in range(envs):
        lines[lane * LINE + size] = carried[lane]
    if envs > FEW:
        scan(lines, LINE, words, squares, decays, carried)
    else:
        for lane in range(envs):
            at_lane = lane * LINE
            _chain(size, after(decays, at_lane), after(gates, at_lane), after(lines, at_lane))
            carried[lane] = lines[at_lane]


@njit
def _pack(size, squares, length, gates, words):
    """Write the gates of one env as bits. Steps that fill the last square are skipped, so y passes through them."""
    for t in range(size, squares * length):
        gates[t] = SKIPPED
    for square in range(squares):
        gates_to_bits(after(gates, square * length), after(words, square * LANES))


@njit(forceinline=True)
def _copy_to(size, source, target):
    if not same(source, target):
        copy(size, source, target)


@njit(forceinline=True)
def _run_of(lane, start, size, left, recursion, lines, flags, scratch):
    """Return the run of one env; its x are computed in the same line in which ``recursion`` later computes y."""
    deltas, decay = DELTAS * LANES + lane, DECAYS * LANES + lane
    return Run(
        start, left + lane, size, TIME, after(lines, deltas * LINE), after(flags, lane * LINE),
        after(lines, (recursion * LANES + lane) * LINE), after(lines, decay * LINE), scratch,
        after(flags, LANES * LINE),
    )  # fmt: skip


@njit(forceinline=True)
def _runs(given, start, size, left, envs, carried, lines, flags, scratch, words):
    """Compute the same steps of ``envs`` envs."""
    length = steps_of(lines)  # of a square
    squares = (size + length - 1) // length
    for lane in range(envs):
        run = _run_of(lane, start, size, left, 0, lines, flags, scratch)
        next_values = _next_values(
            given, run, after(carried, PASSED * LANES + lane), after(scratch, PASSED_LINE * LINE)
        )
        begin(given, run, next_values)
        if envs > FEW:
            _pack(size, squares, length, run.gates, after(words, lane))
    for recursion in RECURSIONS:
        if is_wanted(given, recursion):
            first = recursion * LANES
            for lane in range(envs):
                run = _run_of(lane, start, size, left, recursion, lines, flags, scratch)
                terms, decay = recursion_of(recursion, given, run, after(lines, (STEPS_LEFT * LANES + lane) * LINE))
                _copy_to(size, terms, run.terms)
                _copy_to(size, decay, run.decay)
            _scan_lines(
                envs, size, squares, after(carried, first), flags, words, after(lines, DECAYS * LANES * LINE),
                after(lines, first * LINE),
            )  # fmt: skip
    for lane in range(envs):
        run = _run_of(lane, start, size, left, 0, lines, flags, scratch)
        following = after(lines, (ADVANTAGES * LANES + lane) * LINE + 1)
        write_results(given, run, after(lines, lane * LINE), LANES * LINE, following)


def env_major(first, last, arguments):
    """Compute runs along time, and squares in which a recursion computes envs side by side."""
    given = views(Rollout, arguments)
    dtype = arguments[0].dtype
    carried = np.empty((PASSED + 1, LANES), dtype)
    lines, flags = np.empty((DECAYS + 1, LANES, LINE), dtype), np.empty((LANES + 1, LINE), np.uint8)
    scratch = np.empty((PASSED_LINE + 1, LINE), dtype)
    words = np.empty((RUN // steps_of(at(scratch, 0, 0)), LANES), dtype)
    prepare(given, at(scratch, 0, 0), at(flags, LANES, 0))
    for left in range(first, last, LANES):
        envs = min(LANES, last - left)
        for lane in range(envs):
            for recursion in RECURSIONS:
                carried[recursion, lane] = 0
            if given.last_advantages.steps:
                carried[ADVANTAGES, lane] = at_view(given.last_advantages, 0, left + lane)[0]
        for stop in range(given.rewards.steps, 0, -RUN):
            start = max(0, stop - RUN)
            _runs(
                given, start, stop - start, left, envs, at(carried, 0, 0), at(lines, 0, 0, 0), at(flags, 0, 0),
                at(scratch, 0, 0), at(words, 0, 0),
            )  # fmt: skip
    keep(carried, lines, flags, scratch, words)
