"""The recursion with everything that it can have: skipped steps, coefficients per step, tails, V-trace.

Everything but the recursion itself is computed run by run in a first-level cache, where a run is what lies side by side
in memory: envs of one step, or steps of one env. An option is looked at once for each run, never for each element.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange, types

from fastgae._backends.numba.language import LANES, after, array_of, at, at_view, restrict, transpose, view

RUN = 512  # elements
LINE = RUN + LANES  # and what follows a run of steps
# Envs of one time-major sweep, so that what the rows hand on is still in L2.
WIDTH = 8 * 1024
# Envs that go through the env-major recursion together, 8 in each tile.
TILES = 4
TILE = LANES * LINE
GROUP = TILES * LANES
FEW = 6  # envs up to which one recursion after the other beats tiles that are mostly empty

OPEN, CLOSED, SKIPPED = 0, 1, 2  # gates of the recursion
TIME, ENVS = 0, 1  # axes

# What a row of envs hands on to the row before, or a run of steps to the run before.
NEXT_VALUES, ADVANTAGES, RETURNS, STEPS_LEFT = 0, 2, 3, 4  # the first by turns
CARRIED = 5

# Lines of scratch.
GAMMA, GAMMA_LAMBDA, OTHER, FOLLOWING, RESULT, DELTAS = range(6)
TERMS, DECAY = DELTAS + 1, DELTAS + 2  # time-major
TIME_MAJOR_LINES = DELTAS + 3
# Env-major: one for each env of a group.
TRACED, TRACED_RETURNS, TRACED_STEPS, DECAYS = (DELTAS + GROUP * (i + 1) for i in range(4))
ENV_MAJOR_LINES = DELTAS + GROUP * 5
EXISTS, GATES = 0, 1  # lines of flags


class General(NamedTuple):
    """A rollout: views of matrices, which have no steps where there are none, and the addresses of rows."""

    rewards: Any
    values: Any
    next_values: Any
    last_values: Any
    final_values: Any
    terminated: Any
    truncated: Any
    mask: Any
    gamma: Any
    gamma_lambda: Any
    returns_gamma_lambda: Any
    tail_lambda: Any
    ratios: Any
    clips: Any
    mask_passes_values: Any
    advantages: Any
    returns: Any


# --- one run ---------------------------------------------------------------------------------------------------------


@njit
def _fill(size, number, run):
    for i in range(size):
        run[i] = number


@njit
def _copy(size, source, target):
    restrict()
    for i in range(size):
        target[i] = source[i]


@njit
def _choose(size, gates, wanted, otherwise, chosen):
    restrict()
    for i in range(size):
        one, other = wanted[i], otherwise[i]
        chosen[i] = one if gates[i] != 0 else other


@njit
def _delta(size, gamma, rewards, values, next_values, terminated, deltas):
    restrict()
    for i in range(size):
        reward = rewards[i]
        bootstrapped = reward + gamma[i] * next_values[i]
        deltas[i] = (reward if terminated[i] != 0 else bootstrapped) - values[i]


@njit
def _gate(size, terminated, truncated, exists, gates):
    restrict()
    for i in range(size):
        existing = CLOSED if (terminated[i] | truncated[i]) != 0 else OPEN
        gates[i] = existing if exists[i] != 0 else SKIPPED


@njit
def _minimum(ratio, clip):
    """NaN stays NaN, and a zero keeps its sign."""
    return clip if ratio > clip else ratio


@njit
def _weigh(size, ratios, delta_clip, trace_clip, gamma_lambda, deltas, terms, decay):
    restrict()
    for i in range(size):
        terms[i] = _minimum(ratios[i], delta_clip) * deltas[i]
        decay[i] = _minimum(ratios[i], trace_clip) * gamma_lambda[i]


@njit
def _clipped(size, ratios, clip, gamma_lambda, deltas, gates, following, advantages):
    restrict()
    for i in range(size):
        delta = deltas[i]
        traced = delta + gamma_lambda[i] * following[i]
        advantages[i] = (traced if gates[i] == OPEN else delta) * _minimum(ratios[i], clip)


@njit
def _multiply(size, one, other, product):
    restrict()
    for i in range(size):
        product[i] = one[i] * other[i]


@njit(error_model="numpy")
def _divide(size, one, other, quotient):
    """As IEEE does; Python's model raises on 0."""
    restrict()
    for i in range(size):
        quotient[i] = one[i] / other[i]


@njit
def _write(size, gates, result, output):
    restrict()
    for i in range(size):
        number = result[i]
        output[i] = 0 if gates[i] >= SKIPPED else number


@njit
def _write_sum(size, gates, result, values, output):
    restrict()
    for i in range(size):
        value = values[i]
        total = result[i] + value
        output[i] = value if gates[i] >= SKIPPED else total


@njit
def _scanned(term, decay, following, gate):
    traced = term + decay * following
    existing = traced if gate == OPEN else term
    return following if gate >= SKIPPED else existing


@njit
def _scan(size, terms, decay, gates, carried):
    """y_t = x_t + decay_t y_{t+1} for a row of envs, in the place of y_{t+1}."""
    restrict()
    for n in range(size):
        carried[n] = _scanned(terms[n], decay[n], carried[n], gates[n])


@njit(forceinline=True)
def _run_of(coefficients, t, n, axis, size, run):
    """As they are in memory, or repeated where they have no stride along the run."""
    first = at_view(coefficients, t, n)
    if (coefficients.step_stride if axis == TIME else coefficients.env_stride) != 0 or size == 1:
        return first
    _fill(size, first[0], run)
    return run


@njit(forceinline=True)
def _next_values_of(given, t, n, size, next_values, lines):
    """V' of a run: that of the final observation where there is one."""
    if not given.final_values.steps:
        return next_values
    chosen = after(lines, FOLLOWING * LINE)
    _choose(size, at_view(given.truncated, t, n), at_view(given.final_values, t, n), next_values, chosen)
    return chosen


@njit(forceinline=True)
def _exists(given, t, n, flags):
    return at_view(given.mask, t, n) if given.mask.steps else after(flags, EXISTS * LINE)


@njit(forceinline=True)
def _deltas(given, t, n, size, gamma, next_values, flags, deltas, gates):
    terminated = at_view(given.terminated, t, n)
    _delta(size, gamma, at_view(given.rewards, t, n), at_view(given.values, t, n), next_values, terminated, deltas)
    _gate(size, terminated, at_view(given.truncated, t, n), _exists(given, t, n, flags), gates)


@njit(forceinline=True)
def _output(given, t, n, size, gates, advantages, traced):
    if given.advantages.steps:
        _write(size, gates, advantages, at_view(given.advantages, t, n))
    if given.returns.steps:
        _write_sum(size, gates, traced, at_view(given.values, t, n), at_view(given.returns, t, n))


# --- time-major: row by row, from the last ---------------------------------------------------------------------------


@njit(forceinline=True)
def _row(given, t, n, size, carried, width, lines, flags):
    # V that skipped steps pass on: two rows take turns, for LLVM vectorises no choice in place.
    next_values, passed = after(carried, (t & 1) * width), after(carried, (t + 1 & 1) * width)
    if t + 1 < given.rewards.steps:
        if given.mask_passes_values:
            _choose(size, at_view(given.mask, t + 1, n), at_view(given.next_values, t, n), passed, next_values)
        else:
            next_values = at_view(given.next_values, t, n)
    next_values = _next_values_of(given, t, n, size, next_values, lines)
    traced, result = after(carried, ADVANTAGES * width), after(lines, RESULT * LINE)
    gamma = _run_of(given.gamma, t, n, ENVS, size, after(lines, GAMMA * LINE))
    gamma_lambda = _run_of(given.gamma_lambda, t, n, ENVS, size, after(lines, GAMMA_LAMBDA * LINE))
    deltas, gates, other = after(lines, DELTAS * LINE), after(flags, GATES * LINE), after(lines, OTHER * LINE)
    _deltas(given, t, n, size, gamma, next_values, flags, deltas, gates)
    advantages = traced
    if given.tail_lambda.steps:
        steps_left, terms = after(carried, STEPS_LEFT * width), after(lines, TERMS * LINE)
        tail_lambda = _run_of(given.tail_lambda, t, n, ENVS, size, other)
        _fill(size, 1, terms)
        _scan(size, terms, tail_lambda, gates, steps_left)
        _multiply(size, steps_left, deltas, terms)
        _scan(size, terms, gamma_lambda, gates, traced)
        _divide(size, traced, steps_left, result)
        advantages = traced = result
    elif given.ratios.steps:
        ratios, terms, decay = at_view(given.ratios, t, n), after(lines, TERMS * LINE), after(lines, DECAY * LINE)
        if given.advantages.steps:
            _clipped(size, ratios, given.clips[2], gamma_lambda, deltas, gates, traced, result)
            advantages = result
        _weigh(size, ratios, given.clips[0], given.clips[1], gamma_lambda, deltas, terms, decay)
        _scan(size, terms, decay, gates, traced)
    else:
        _scan(size, deltas, gamma_lambda, gates, traced)
    if given.returns_gamma_lambda.steps:
        decay, traced = _run_of(given.returns_gamma_lambda, t, n, ENVS, size, other), after(carried, RETURNS * width)
        _scan(size, deltas, decay, gates, traced)
    _output(given, t, n, size, gates, advantages, traced)


def time_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, mask, gamma,
    gamma_lambda, returns_gamma_lambda, tail_lambda, last_advantages, ratios, clips, mask_passes_values, advantages,
    returns,
):  # fmt: skip
    dtype = rewards.dtype
    given = General(
        view(rewards), view(values), view(next_values), at(last_values, 0), view(final_values), view(terminated),
        view(truncated), view(mask), view(gamma), view(gamma_lambda), view(returns_gamma_lambda), view(tail_lambda),
        view(ratios), at(clips, 0), mask_passes_values, view(advantages), view(returns),
    )  # fmt: skip
    width = min(WIDTH, last - first)
    carried = np.empty(CARRIED * width, dtype)
    lines, flags = np.empty(TIME_MAJOR_LINES * LINE, dtype), np.empty(2 * LINE, np.uint8)
    _fill(RUN, 1, at(flags, EXISTS * LINE))
    for left in range(first, last, width):
        size = min(width, last - left)
        for n in range(size):
            carried[(len(rewards) - 1 & 1) * width + n] = last_values[left + n]
            carried[ADVANTAGES * width + n] = last_advantages[left + n]
            carried[RETURNS * width + n] = carried[STEPS_LEFT * width + n] = 0
        for t in range(given.rewards.steps - 1, -1, -1):
            for right in range(size, 0, -RUN):
                start = max(0, right - RUN)
                _row(
                    given, t, left + start, right - start, at(carried, start), width, at(lines, 0), at(flags, 0)
                )  # fmt: skip


# --- env-major: runs along time, and tiles in which the recursion runs along time with envs side by side -------------


@njit
def _pass_values(size, exists_next, next_values, value, passed):
    """V of the next step that exists, of each step; the first."""
    for t in range(size - 1, -1, -1):
        value = next_values[t] if exists_next[t] != 0 else value
        passed[t] = value
    return value


@njit(forceinline=True)
def _next_values(given, start, size, n, carried, passed):
    next_values = at_view(given.next_values, start, n)
    known = size if start + size < given.rewards.steps else size - 1
    if known < size:
        carried[0] = passed[known] = given.last_values[n]
    if given.mask_passes_values:
        carried[0] = _pass_values(known, at_view(given.mask, start + 1, n), next_values, carried[0], passed)
        return passed
    if known == size:
        return next_values
    _copy(known, next_values, passed)
    return passed


@njit
def _chain(size, decay, gates, traced):
    restrict()
    for t in range(size - 1, -1, -1):
        for n in range(LANES):
            for tile in range(TILES):
                i = tile * TILE + t * LANES + n
                traced[i] = _scanned(traced[i], decay[i], traced[i + LANES], gates[i])


@njit
def _chain_of_one(size, decay, gates, traced):
    following = traced[size]
    for t in range(size - 1, -1, -1):
        following = _scanned(traced[t], decay[t], following, gates[t])
        traced[t] = following


@njit
def _to_lanes(size, lines, tile):
    """Whole squares: LINE is a multiple of LANES, and what lies behind the last step is never read."""
    for t in range(0, size, LANES):
        transpose(lines, t, LINE, tile, t * LANES, LANES)


@njit
def _from_lanes(size, tile, lines):
    for t in range(0, size, LANES):
        transpose(tile, t * LANES, LANES, lines, t, LINE)


@njit
def _flags_to_lanes(size, lines, tile):
    """Bytes LLVM shuffles well by itself."""
    restrict()
    for t in range(size):
        for n in range(LANES):
            tile[t * LANES + n] = lines[n * LINE + t]


@njit
def _scan_lines(envs, size, group, carried, lines, flags, tiles, gate_tiles):
    """From terms to y in place, and behind them what followed; ``carried`` is that, and then the first y."""
    for lane in range(envs):
        lines[(group + lane) * LINE + size] = carried[lane]
    if envs <= FEW:
        for lane in range(envs):
            _chain_of_one(
                size,
                after(lines, (DECAYS + lane) * LINE),
                after(flags, (GATES + lane) * LINE),
                after(lines, (group + lane) * LINE),
            )
    else:
        traced, decay = tiles, after(tiles, TILES * TILE)
        for tile in range(0, envs, LANES):
            _to_lanes(size + 1, after(lines, (group + tile) * LINE), after(traced, tile * LINE))
            _to_lanes(size, after(lines, (DECAYS + tile) * LINE), after(decay, tile * LINE))
        _chain(size, decay, gate_tiles, traced)
        for tile in range(0, envs, LANES):
            _from_lanes(size, after(traced, tile * LINE), after(lines, (group + tile) * LINE))
    for lane in range(envs):
        carried[lane] = lines[(group + lane) * LINE]


@njit(forceinline=True)
def _decays(coefficients, start, size, left, envs, lines):
    for lane in range(envs):
        line = after(lines, (DECAYS + lane) * LINE)
        run = _run_of(coefficients, start, left + lane, TIME, size, line)
        if coefficients.step_stride != 0 or size == 1:
            _copy(size, run, line)


@njit(forceinline=True)
def _block(given, start, size, left, envs, carried, lines, flags, tiles, gate_tiles):
    for lane in range(envs):
        n = left + lane
        next_values = _next_values(given, start, size, n, after(carried, lane), after(lines, RESULT * LINE))
        next_values = _next_values_of(given, start, n, size, next_values, lines)
        gamma = _run_of(given.gamma, start, n, TIME, size, after(lines, GAMMA * LINE))
        deltas, gates = after(lines, (DELTAS + lane) * LINE), after(flags, (GATES + lane) * LINE)
        _deltas(given, start, n, size, gamma, next_values, flags, deltas, gates)
    if envs > FEW:
        for tile in range(0, envs, LANES):
            _flags_to_lanes(size, after(flags, (GATES + tile) * LINE), after(gate_tiles, tile * LINE))

    if given.tail_lambda.steps:
        _decays(given.tail_lambda, start, size, left, envs, lines)
        for lane in range(envs):
            _fill(size, 1, after(lines, (TRACED_STEPS + lane) * LINE))
        _scan_lines(envs, size, TRACED_STEPS, after(carried, STEPS_LEFT * GROUP), lines, flags, tiles, gate_tiles)
    if not given.ratios.steps:
        _decays(given.gamma_lambda, start, size, left, envs, lines)
    for lane in range(envs):
        n, deltas, terms = left + lane, after(lines, (DELTAS + lane) * LINE), after(lines, (TRACED + lane) * LINE)
        if given.tail_lambda.steps:
            _multiply(size, after(lines, (TRACED_STEPS + lane) * LINE), deltas, terms)
        elif given.ratios.steps:
            gamma_lambda = _run_of(given.gamma_lambda, start, n, TIME, size, after(lines, GAMMA_LAMBDA * LINE))
            _weigh(
                size, at_view(given.ratios, start, n), given.clips[0], given.clips[1], gamma_lambda, deltas, terms,
                after(lines, (DECAYS + lane) * LINE),
            )  # fmt: skip
        else:
            _copy(size, deltas, terms)
    _scan_lines(envs, size, TRACED, after(carried, ADVANTAGES * GROUP), lines, flags, tiles, gate_tiles)
    if given.returns_gamma_lambda.steps:
        _decays(given.returns_gamma_lambda, start, size, left, envs, lines)
        for lane in range(envs):
            _copy(size, after(lines, (DELTAS + lane) * LINE), after(lines, (TRACED_RETURNS + lane) * LINE))
        _scan_lines(envs, size, TRACED_RETURNS, after(carried, RETURNS * GROUP), lines, flags, tiles, gate_tiles)

    for lane in range(envs):
        n, gates, traced = left + lane, after(flags, (GATES + lane) * LINE), after(lines, (TRACED + lane) * LINE)
        advantages, result = traced, after(lines, RESULT * LINE)
        if given.tail_lambda.steps:
            _divide(size, traced, after(lines, (TRACED_STEPS + lane) * LINE), result)
            advantages = traced = result
        elif given.ratios.steps:
            gamma_lambda = _run_of(given.gamma_lambda, start, n, TIME, size, after(lines, GAMMA_LAMBDA * LINE))
            deltas, following = after(lines, (DELTAS + lane) * LINE), after(traced, 1)
            _clipped(
                size, at_view(given.ratios, start, n), given.clips[2], gamma_lambda, deltas, gates, following, result
            )
            advantages = result
        if given.returns_gamma_lambda.steps:
            traced = after(lines, (TRACED_RETURNS + lane) * LINE)
        _output(given, start, n, size, gates, advantages, traced)


def env_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, mask, gamma,
    gamma_lambda, returns_gamma_lambda, tail_lambda, last_advantages, ratios, clips, mask_passes_values, advantages,
    returns,
):  # fmt: skip
    dtype = rewards.dtype
    given = General(
        view(rewards), view(values), view(next_values), at(last_values, 0), view(final_values), view(terminated),
        view(truncated), view(mask), view(gamma), view(gamma_lambda), view(returns_gamma_lambda), view(tail_lambda),
        view(ratios), at(clips, 0), mask_passes_values, view(advantages), view(returns),
    )  # fmt: skip
    carried, lines = np.empty(CARRIED * GROUP, dtype), np.empty(ENV_MAJOR_LINES * LINE, dtype)
    flags, tiles = np.empty((GATES + GROUP) * LINE, np.uint8), np.empty(2 * TILES * TILE, dtype)
    gate_tiles = np.empty(TILES * TILE, np.uint8)
    _fill(RUN, 1, at(flags, EXISTS * LINE))
    for left in range(first, last, GROUP):
        envs = min(GROUP, last - left)
        for lane in range(envs):
            carried[ADVANTAGES * GROUP + lane] = last_advantages[left + lane]
            carried[RETURNS * GROUP + lane] = carried[STEPS_LEFT * GROUP + lane] = 0
        for stop in range(len(rewards), 0, -RUN):
            start = max(0, stop - RUN)
            _block(
                given, start, stop - start, left, envs, at(carried, 0), at(lines, 0), at(flags, 0), at(tiles, 0),
                at(gate_tiles, 0),
            )  # fmt: skip


# --- how they are called ---------------------------------------------------------------------------------------------


def arguments(real):
    """The types that follow ``first, last``."""
    matrix, row, gates = array_of(real, 2), array_of(real, 1), array_of(types.boolean, 2)
    output = array_of(real, 2, readonly=False)
    return (
        matrix, matrix, matrix, row, matrix, gates, gates, gates, matrix, matrix, matrix, matrix, row, matrix, row,
        types.boolean, output, output,
    )  # fmt: skip


def in_parallel(
    kernel, bounds, rewards, values, next_values, last_values, final_values, terminated, truncated, mask, gamma,
    gamma_lambda, returns_gamma_lambda, tail_lambda, last_advantages, ratios, clips, mask_passes_values, advantages,
    returns,
):  # fmt: skip
    for i in prange(len(bounds) - 1):
        kernel(
            bounds[i], bounds[i + 1], rewards, values, next_values, last_values, final_values, terminated, truncated,
            mask, gamma, gamma_lambda, returns_gamma_lambda, tail_lambda, last_advantages, ratios, clips,
            mask_passes_values, advantages, returns,
        )  # fmt: skip
