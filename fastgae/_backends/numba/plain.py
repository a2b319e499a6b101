"""The recursion of a plain rollout: one loop that fuses all of it, and stays in vectors."""

import numpy as np
from numba import njit, prange, types

from fastgae._backends.numba.language import LANES, array_of, at, restrict, transpose

# Envs of one time-major sweep, so that A and V of the next row are still in L2: 16 x 1M float32 takes 1.8 times as long
# as np.add with 4 K, 16 K or 64 K of them, and 2.5 times as long in whole rows.
WIDTH = 16 * 1024
# Rows of this many envs are computed run by run from right to left, so that the sweep walks strictly down memory and
# prefetching works. Float32 in rows from left to right and so: 18 and 14 ms for 16384 x 1024; in cache, 54 and 44 us
# for 128 x 1024, 79 and 50 for 1024 x 128. Outside it does not pay: 50 and 52 us for 2048 x 64, 14 and 16 ms for
# 1024 x 16384.
NARROW, WIDE = 128, 2048
RUN = 32  # envs; of 16 LLVM may unroll the loop instead of vectorising it: 128 x 1024 takes 144 us then
# Steps of one env-major tile. From memory, long pieces of few pages win: 1024 x 16384 float32 runs at 0.22, 0.25, 0.35,
# 0.44 and 0.45 G steps/s with 64, 128, 256, 512 and 1024; in cache they are equal.
BLOCK = 512
# 4 tiles of 8 envs go through the chain together: with fewer, LLVM
# unrolls the chain instead of vectorising it (0.45 ns a step instead of 0.13).
TILES = 4
TILE = LANES * (BLOCK + 1)  # one row more: the advantages that follow the block
# Envs up to which one chain after the other beats tiles that are mostly empty: 0.5 G steps/s, which tiles reach with 7.
FEW = 6

# --- the equation ----------------------------------------------------------------------------------------------------
# Both sides are computed and one is selected: LLVM vectorises that, and nothing is ever multiplied by a gate.


@njit
def _delta(reward, value, next_value, terminated, gamma):
    bootstrapped = reward + gamma * next_value
    return (reward if terminated else bootstrapped) - value


@njit
def _advantage(delta, following, closed, gamma_lambda):
    traced = delta + gamma_lambda * following
    return delta if closed else traced


@njit
def _choose(size, truncated, final_values, next_values, chosen):
    for i in range(size):
        final_value, next_value = final_values[i], next_values[i]
        chosen[i] = final_value if truncated[i] != 0 else next_value


# --- time-major: row by row, from the last ---------------------------------------------------------------------------


@njit
def _step(n, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following, advantages, returns):
    value, ends = values[n], terminated[n]
    delta = _delta(rewards[n], value, next_values[n], ends != 0, gamma)
    advantage = _advantage(delta, following[n], (ends | truncated[n]) != 0, gamma_lambda)
    advantages[n] = advantage
    returns[n] = advantage + value


@njit(forceinline=True)
def _row(
    size, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following, advantages, returns
):
    """The last run may overlap the one before it, and then computes the same again: a row reads none of its results."""
    restrict()
    if NARROW <= size <= WIDE:
        for last in range(size, 0, -RUN):
            first = max(0, last - RUN)
            for n in range(RUN):
                _step(
                    first + n, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following,
                    advantages, returns,
                )  # fmt: skip
    else:
        for n in range(size):
            _step(
                n, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following, advantages,
                returns,
            )  # fmt: skip


def time_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns,
):  # fmt: skip
    steps = len(rewards)
    scratch = np.empty((5, min(WIDTH, last - first)), rewards.dtype)
    unwanted, chosen = at(scratch, 2, 0), at(scratch, 3, 0)
    for left in range(first, last, WIDTH):
        size = min(WIDTH, last - left)
        following_values, following = chosen, at(scratch, 4, 0)
        for n in range(size):
            following_values[n] = last_values[left + n]
            following[n] = 0
        for t in range(steps - 1, -1, -1):
            if t < steps - 1:
                following_values = at(next_values, t, left)
            if len(final_values):
                _choose(size, at(truncated, t, left), at(final_values, t, left), following_values, chosen)
                following_values = chosen
            # Advantages that nobody asked for are still what the row before needs: two rows take turns.
            current = at(advantages, t, left) if len(advantages) else at(scratch, t & 1, 0)
            _row(
                size, gamma, gamma_lambda, at(rewards, t, left), at(values, t, left), following_values,
                at(terminated, t, left), at(truncated, t, left), following, current,
                at(returns, t, left) if len(returns) else unwanted,
            )  # fmt: skip
            following = current


# --- env-major: deltas along time, then transposed, so that the chain runs along time with envs side by side ---------


@njit
def _deltas(size, gamma, rewards, values, next_values, terminated, truncated, deltas, closed):
    restrict()
    for t in range(size):
        ends = terminated[t]
        deltas[t] = _delta(rewards[t], values[t], next_values[t], ends != 0, gamma)
        closed[t] = ends | truncated[t]


@njit
def _flags_to_lanes(size, lines, tile):
    """Bytes LLVM shuffles well by itself."""
    restrict()
    for t in range(size):
        for n in range(LANES):
            tile[t * LANES + n] = lines[n * BLOCK + t]


@njit
def _to_lanes(size, lines, tile):
    """Whole squares: BLOCK is a multiple of LANES, and what lies behind the last step is never read."""
    for t in range(0, size, LANES):
        transpose(lines, t, BLOCK, tile, t * LANES, LANES)


@njit
def _from_lanes(size, tile, lines):
    for t in range(0, size, LANES):
        transpose(tile, t * LANES, LANES, lines, t, BLOCK)


@njit
def _chain(size, gamma_lambda, deltas, closed, advantages):
    """Row t reads row t + 1; the first row of the block after this one becomes the row after the last."""
    restrict()
    for tile in range(TILES):
        for n in range(LANES):
            advantages[tile * TILE + size * LANES + n] = advantages[tile * TILE + n]
    for t in range(size - 1, -1, -1):
        for n in range(LANES):
            for tile in range(TILES):
                i = tile * TILE + t * LANES + n
                advantages[i] = _advantage(deltas[i], advantages[i + LANES], closed[i] != 0, gamma_lambda)


@njit
def _chain_of_one(size, gamma_lambda, closed, line, following):
    """From deltas to advantages in place; the first advantage."""
    for t in range(size - 1, -1, -1):
        following = _advantage(line[t], following, closed[t] != 0, gamma_lambda)
        line[t] = following
    return following


@njit
def _copy(size, source, target):
    restrict()
    for i in range(size):
        target[i] = source[i]


@njit
def _add(size, advantages, values, returns):
    restrict()
    for t in range(size):
        returns[t] = advantages[t] + values[t]


def env_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns,
):  # fmt: skip
    steps = len(rewards)
    scratch = np.empty((1, 2 * TILES * TILE + (LANES + 1) * BLOCK), rewards.dtype)
    flags = np.empty((1, TILES * TILE + LANES * BLOCK), np.uint8)
    advantage_tiles, lines = TILES * TILE, 2 * TILES * TILE  # the delta tiles are at 0
    chosen = at(scratch, 0, lines + LANES * BLOCK)
    for left in range(first, last, TILES * LANES):
        right = min(left + TILES * LANES, last)
        few = right - left <= FEW
        for tile in range(TILES):
            for lane in range(LANES):
                scratch[0, advantage_tiles + tile * TILE + lane] = 0
        for stop in range(steps, 0, -BLOCK):
            start = max(0, stop - BLOCK)
            size = stop - start
            for n in range(left, right):
                tile, lane = divmod(n - left, LANES)
                line, closed = at(scratch, 0, lines + lane * BLOCK), at(flags, 0, TILES * TILE + lane * BLOCK)
                following_values = at(next_values, start, n)
                if stop == steps:
                    _copy(size - 1, following_values, chosen)
                    chosen[size - 1] = last_values[n]
                    following_values = chosen
                if len(final_values):
                    _choose(size, at(truncated, start, n), at(final_values, start, n), following_values, chosen)
                    following_values = chosen
                _deltas(
                    size, gamma, at(rewards, start, n), at(values, start, n), following_values,
                    at(terminated, start, n), at(truncated, start, n), line, closed,
                )  # fmt: skip
                if few:
                    carry = scratch[0, advantage_tiles + lane]
                    scratch[0, advantage_tiles + lane] = _chain_of_one(size, gamma_lambda, closed, line, carry)
                elif lane == LANES - 1 or n == right - 1:
                    _to_lanes(size, at(scratch, 0, lines), at(scratch, 0, tile * TILE))
                    _flags_to_lanes(size, at(flags, 0, TILES * TILE), at(flags, 0, tile * TILE))
            if not few:
                _chain(size, gamma_lambda, at(scratch, 0, 0), at(flags, 0, 0), at(scratch, 0, advantage_tiles))
            for n in range(left, right):
                tile, lane = divmod(n - left, LANES)
                line = at(scratch, 0, lines + lane * BLOCK)
                if lane == 0 and not few:
                    _from_lanes(size, at(scratch, 0, advantage_tiles + tile * TILE), line)
                if len(advantages):
                    _copy(size, line, at(advantages, start, n))
                if len(returns):
                    _add(size, line, at(values, start, n), at(returns, start, n))


# --- how they are called ---------------------------------------------------------------------------------------------


def arguments(real):
    """The types that follow ``first, last``."""
    matrix, gates, output = array_of(real, 2), array_of(types.boolean, 2), array_of(real, 2, readonly=False)
    return matrix, matrix, matrix, array_of(real, 1), matrix, gates, gates, real, real, output, output


def in_parallel(
    kernel, bounds, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns,
):  # fmt: skip
    for i in prange(len(bounds) - 1):
        kernel(
            bounds[i], bounds[i + 1], rewards, values, next_values, last_values, final_values, terminated, truncated,
            gamma, gamma_lambda, advantages, returns,
        )  # fmt: skip
