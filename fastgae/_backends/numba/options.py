"""Sweep over a rollout with options, run by run: skipped steps, coefficients per step, tails, V-trace."""

import numpy as np
from numba import njit

from fastgae._backends.numba.lanes import (
    FEW,
    GROUP,
    LANES,
    LINE,
    RUN,
    SWEEP_ENVS,
    TILE,
    TILES,
    chains,
    choose,
    copy,
    flags_to_lanes,
    from_lanes,
    to_lanes,
)
from fastgae._backends.numba.language import after, at, at_view, restrict, same, views
from fastgae._backends.numba.step import (
    ADVANTAGES,
    ENVS,
    RECURSIONS,
    SCRATCH_LINES,
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
# Env-major, every recursion has a line for each env of a group. The lines of deltas and decays come after those:
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


_chain, _chain_of_one = chains(scanned)


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
def _scan_lines(envs, size, carried, gates, decays, lines, tiles, gate_tiles):
    """Compute a recursion from x to y in place; ``carried`` holds the y behind the run, and then the first y."""
    for lane in range(envs):
        lines[lane * LINE + size] = carried[lane]
    if envs <= FEW:
        for lane in range(envs):
            at_lane = lane * LINE
            _chain_of_one(size, after(decays, at_lane), after(gates, at_lane), after(lines, at_lane))
    else:
        traced, decay = tiles, after(tiles, TILES * TILE)
        for tile in range(0, envs, LANES):
            to_lanes(size + 1, after(lines, tile * LINE), after(traced, tile * LINE))
            to_lanes(size, after(decays, tile * LINE), after(decay, tile * LINE))
        _chain(size, decay, gate_tiles, traced)
        for tile in range(0, envs, LANES):
            from_lanes(size, after(traced, tile * LINE), after(lines, tile * LINE))
    for lane in range(envs):
        carried[lane] = lines[lane * LINE]


@njit(forceinline=True)
def _copy_to(size, source, target):
    if not same(source, target):
        copy(size, source, target)


@njit(forceinline=True)
def _run_of(lane, start, size, left, recursion, lines, flags, scratch):
    """Return the run of one env; its x are computed in the line in which ``recursion`` then turns them into y."""
    deltas, decay = DELTAS * GROUP + lane, DECAYS * GROUP + lane
    return Run(
        start, left + lane, size, TIME, after(lines, deltas * LINE), after(flags, lane * LINE),
        after(lines, (recursion * GROUP + lane) * LINE), after(lines, decay * LINE), scratch,
        after(flags, GROUP * LINE),
    )  # fmt: skip


@njit(forceinline=True)
def _runs(given, start, size, left, envs, carried, lines, flags, scratch, tiles, gate_tiles):
    """Compute the same steps of ``envs`` envs."""
    for lane in range(envs):
        run = _run_of(lane, start, size, left, 0, lines, flags, scratch)
        next_values = _next_values(
            given, run, after(carried, PASSED * GROUP + lane), after(scratch, PASSED_LINE * LINE)
        )
        begin(given, run, next_values)
    if envs > FEW:
        for tile in range(0, envs, LANES):
            flags_to_lanes(size, after(flags, tile * LINE), after(gate_tiles, tile * LINE))
    for recursion in RECURSIONS:
        if is_wanted(given, recursion):
            first = recursion * GROUP
            for lane in range(envs):
                run = _run_of(lane, start, size, left, recursion, lines, flags, scratch)
                terms, decay = recursion_of(recursion, given, run, after(lines, (STEPS_LEFT * GROUP + lane) * LINE))
                _copy_to(size, terms, run.terms)
                _copy_to(size, decay, run.decay)
            _scan_lines(
                envs, size, after(carried, first), flags, after(lines, DECAYS * GROUP * LINE),
                after(lines, first * LINE), tiles, gate_tiles,
            )  # fmt: skip
    for lane in range(envs):
        run = _run_of(lane, start, size, left, 0, lines, flags, scratch)
        following = after(lines, (ADVANTAGES * GROUP + lane) * LINE + 1)
        write_results(given, run, after(lines, lane * LINE), GROUP * LINE, following)


def env_major(first, last, arguments):
    """Compute runs along time, and tiles in which a recursion computes envs side by side."""
    given = views(Rollout, arguments)
    dtype = arguments[0].dtype
    carried = np.empty((PASSED + 1, GROUP), dtype)
    lines, flags = np.empty((DECAYS + 1, GROUP, LINE), dtype), np.empty((GROUP + 1, LINE), np.uint8)
    scratch = np.empty((PASSED_LINE + 1, LINE), dtype)
    tiles, gate_tiles = np.empty((2 * TILES, TILE), dtype), np.empty((TILES, TILE), np.uint8)
    prepare(given, at(scratch, 0, 0), at(flags, GROUP, 0))
    for left in range(first, last, GROUP):
        envs = min(GROUP, last - left)
        for lane in range(envs):
            for recursion in RECURSIONS:
                carried[recursion, lane] = 0
            if given.last_advantages.steps:
                carried[ADVANTAGES, lane] = at_view(given.last_advantages, 0, left + lane)[0]
        for stop in range(given.rewards.steps, 0, -RUN):
            start = max(0, stop - RUN)
            _runs(
                given, start, stop - start, left, envs, at(carried, 0, 0), at(lines, 0, 0, 0), at(flags, 0, 0),
                at(scratch, 0, 0), at(tiles, 0, 0), at(gate_tiles, 0, 0),
            )  # fmt: skip
