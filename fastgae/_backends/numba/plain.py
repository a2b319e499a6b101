"""Compute a plain rollout in loops that LLVM vectorises."""

from collections import namedtuple

import numpy as np
from numba import njit

from fastgae._backends.numba.language import after, at, at_view, keep, restrict, views
from fastgae._backends.numba.runs import (
    FEW,
    LINE,
    RUN,
    SWEEP_ENVS,
    add,
    chain_of,
    choose,
    copy,
)
from fastgae._backends.numba.squares import LANES, gates_to_bits, scan, steps_of
from fastgae._canonical import Rollout

# A plain rollout has only the fields without a default.
Plain = namedtuple("Plain", [name for name in Rollout._fields if name not in Rollout._field_defaults])  # type: ignore[misc]

# A row with this many envs is computed in pieces from right to left, so that the sweep walks strictly down memory and
# prefetching works. Float32, from left to right and so: 18 and 14 ms for 16384 x 1024; in cache, 54 and 44 us for
# 128 x 1024, 79 and 50 for 1024 x 128. For other rows it does not pay: 50 and 52 us for 2048 x 64, 14 and 16 ms for
# 1024 x 16384.
FEWEST_BACKWARD, MOST_BACKWARD = 128, 2048
BACKWARD_ENVS = 32  # LLVM may unroll a loop of 16 instead of vectorising it: 128 x 1024 takes 144 us then


@njit
def delta(reward, value, next_value, terminated, gamma):
    """Return delta = (r + gamma V') - V, without gamma V' where terminated.

    Both sides of a gate are computed and one is selected: LLVM vectorises that, and a gate never multiplies anything.
    """
    bootstrapped = reward + gamma * next_value
    return (reward if terminated else bootstrapped) - value


@njit
def advantage(term, decay, following, closed):
    """Return A = delta + gl A_next, without gl A_next where the trace gate is closed."""
    traced = term + decay * following
    return term if closed else traced


@njit
def _advantage(term, decay, following, gate):
    return advantage(term, decay, following, gate != 0)


_chain = chain_of(_advantage)


@njit
def _step(n, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following, advantages, returns):
    value, ends = values[n], terminated[n]
    term = delta(rewards[n], value, next_values[n], ends != 0, gamma)
    result = advantage(term, gamma_lambda, following[n], (ends | truncated[n]) != 0)
    advantages[n] = result
    returns[n] = result + value


@njit(forceinline=True)
def _row(
    size, gamma, gamma_lambda, rewards, values, next_values, terminated, truncated, following, advantages, returns
):
    """Compute one row.

    The last piece may overlap the one before it, and then computes the same again: a row reads none of its results.
    """
    restrict()
    if FEWEST_BACKWARD <= size <= MOST_BACKWARD:
        for last in range(size, 0, -BACKWARD_ENVS):
            first = max(0, last - BACKWARD_ENVS)
            for n in range(BACKWARD_ENVS):
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


def time_major(first, last, arguments):
    """Compute row by row, from the last."""
    given = views(Plain, arguments)
    steps, dtype = given.rewards.steps, arguments[0].dtype
    gamma, gamma_lambda = dtype.type(given.gamma), dtype.type(given.gamma_lambda)
    truncated = given.truncated if given.truncated.steps else given.terminated
    scratch = np.empty((6, min(SWEEP_ENVS, last - first)), dtype)
    unwanted, final, following_values = at(scratch, 2, 0), at(scratch, 3, 0), at(scratch, 4, 0)
    for left in range(first, last, SWEEP_ENVS):
        size = min(SWEEP_ENVS, last - left)
        next_values, following = following_values, at(scratch, 5, 0)
        for n in range(size):
            next_values[n] = at_view(given.last_values, 0, left + n)[0]
            following[n] = 0
        for t in range(steps - 1, -1, -1):
            if t < steps - 1:
                next_values = at_view(given.next_values, t, left)
            if given.final_values.steps:
                choose(size, at_view(truncated, t, left), at_view(given.final_values, t, left), next_values, final)
                next_values = final
            # The row before needs the advantages even if the caller does not want them: two rows of scratch alternate.
            current = at_view(given.advantages, t, left) if given.advantages.steps else at(scratch, t & 1, 0)
            _row(
                size, gamma, gamma_lambda, at_view(given.rewards, t, left), at_view(given.values, t, left),
                next_values, at_view(given.terminated, t, left), at_view(truncated, t, left), following, current,
                at_view(given.returns, t, left) if given.returns.steps else unwanted,
            )  # fmt: skip
            following = current
    keep(scratch)


@njit
def _deltas(size, gamma, rewards, values, next_values, terminated, truncated, deltas, closed):
    restrict()
    for t in range(size):
        ends = terminated[t]
        deltas[t] = delta(rewards[t], values[t], next_values[t], ends != 0, gamma)
        closed[t] = ends | truncated[t]


def env_major(first, last, arguments):
    """Compute deltas along time, and transpose them in squares, so that the recursion computes envs side by side."""
    given = views(Plain, arguments)
    steps, dtype = given.rewards.steps, arguments[0].dtype
    gamma, gamma_lambda = dtype.type(given.gamma), dtype.type(given.gamma_lambda)
    truncated = given.truncated if given.truncated.steps else given.terminated
    lines, gates = np.zeros((LANES + 2, LINE), dtype), np.zeros(LINE, np.uint8)
    following_values, final, closed = at(lines, LANES, 0), at(lines, LANES + 1, 0), at(gates, 0)
    carried = np.empty(LANES, dtype)  # the advantages that follow a run
    length = steps_of(following_values)  # of a square
    words = np.empty((RUN // length, LANES), dtype)
    for left in range(first, last, LANES):
        right = min(left + LANES, last)
        few = right - left <= FEW
        for n in range(LANES):
            carried[n] = 0
        for start in range((steps - 1) // RUN * RUN, -1, -RUN):
            size = min(RUN, steps - start)
            squares = (size + length - 1) // length
            for n in range(left, right):
                line = at(lines, n - left, 0)
                next_values = at_view(given.next_values, start, n)
                if start + size == steps:
                    copy(size - 1, next_values, following_values)
                    following_values[size - 1] = at_view(given.last_values, 0, n)[0]
                    next_values = following_values
                if given.final_values.steps:
                    choose(
                        size, at_view(truncated, start, n), at_view(given.final_values, start, n), next_values, final
                    )
                    next_values = final
                _deltas(
                    size, gamma, at_view(given.rewards, start, n), at_view(given.values, start, n), next_values,
                    at_view(given.terminated, start, n), at_view(truncated, start, n), line, closed,
                )  # fmt: skip
                if few:
                    line[size] = carried[n - left]
                    _chain(size, gamma_lambda, closed, line)
                    carried[n - left] = line[0]
                else:
                    # After the last step of the rollout, A is 0, and padding steps keep it at 0.
                    for t in range(size, squares * length):
                        line[t] = closed[t] = 0
                    for square in range(squares):
                        gates_to_bits(after(closed, square * length), at(words, square, n - left))
            if not few:
                scan(at(lines, 0, 0), LINE, at(words, 0, 0), squares, gamma_lambda, at(carried, 0))
            for n in range(left, right):
                line = at(lines, n - left, 0)
                if given.advantages.steps:
                    copy(size, line, at_view(given.advantages, start, n))
                if given.returns.steps:
                    add(size, line, at_view(given.values, start, n), at_view(given.returns, start, n))
    keep(lines, gates, carried, words)
