"""The recursion in Numba: one vectorised kernel per memory layout and dtype; large rollouts run it on spans of envs.

    delta = (r + gamma V') - V     V' left out where terminated
    A     = delta + gl A_next      A_next left out where terminated or truncated
    R     = A + V

The first call for a layout and dtype compiles for 1 to 4 seconds; later processes load that in 0.3 seconds.
The first large one compiles the parallel loop for another 2.
"""

import functools
import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fastgae._canonical import Rollout

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these kernels run only when compiled: unset it to use them")

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
# A tile holds 8 envs, as many as a vector has float32, and 4 tiles go through the chain together: with fewer, LLVM
# unrolls the chain instead of vectorising it (0.45 ns a step instead of 0.13).
LANES, TILES = 8, 4
TILE = LANES * (BLOCK + 1)  # one row more: the advantages that follow the block
# Envs up to which one chain after the other beats tiles that are mostly empty: 0.5 G steps/s, which tiles reach with 7.
FEW = 6
# A parallel call costs 0.16 ms, in which Numba looks the kernel up, and the wait for the slower core. Best of many on
# two shared cores, one thread and two: env-major 1.9 and 1.5 ms for 1 M float32 steps, 4.1 and 3.0 for 2 M, 61 and 32
# for 16 M; time-major, which memory bounds, 0.6 and 1.1, 1.4 and 1.6, 16 and 17. A core that others hold costs 10 ms.
STEPS_PER_THREAD = 1024 * 1024
SPAN_ALIGNMENT = 64  # envs, so that no two threads write to one cache line

# --- what Numba has no word for --------------------------------------------------------------------------------------


@intrinsic
def _at(typing_context, matrix, t, n):
    """The address of an element: what follows it along the unit axis is contiguous, which the type does not tell."""

    def address(context, builder, signature, arguments):
        array = make_array(matrix)(context, builder, arguments[0])
        return cgutils.get_item_pointer(context, builder, matrix, array, arguments[1:])

    element = types.uint8 if matrix.dtype == types.boolean else matrix.dtype
    return types.CPointer(element)(matrix, types.intp, types.intp), address


@intrinsic
def _restrict(typing_context):
    """C's __restrict on every pointer that the calling function takes."""

    def mark(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.none(), mark


@intrinsic
def _transpose(typing_context, source, first, apart, target, to, to_apart):
    """LANES x LANES elements in three rounds of shuffles, each one instruction of AVX2. For the plain loops LLVM finds
    several times as many: advantages of 1024 x 128 float32 took 121 us, and take 106.
    """
    # Which two rows meet, how much further right the second half of their elements is, and the first half.
    rounds = (
        (1, 2, (0, 8, 1, 9, 4, 12, 5, 13)),
        (2, 2, (0, 1, 8, 9, 4, 5, 12, 13)),
        (4, 4, (0, 1, 2, 3, 8, 9, 10, 11)),
    )
    result = (0, 2, 1, 3, 4, 6, 5, 7)  # the order in which that leaves the rows

    def shuffle(context, builder, signature, arguments):
        source_pointer, source_first, source_apart, target_pointer, target_first, target_apart = arguments
        element = context.get_data_type(source.dtype)
        vector, alignment = ir.VectorType(element, LANES), context.get_abi_sizeof(element)

        def row(pointer, begin, distance, i):
            index = builder.add(begin, builder.mul(distance, distance.type(i)))
            return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())

        rows = [builder.load(row(source_pointer, source_first, source_apart, i), align=alignment) for i in range(LANES)]
        for pair, further, half in rounds:
            for i in range(LANES):
                if not i & pair:
                    halves = (
                        ir.Constant(ir.VectorType(ir.IntType(32), LANES), [lane + right for lane in half])
                        for right in (0, further)
                    )
                    upper, lower = rows[i], rows[i + pair]
                    rows[i], rows[i + pair] = (builder.shuffle_vector(upper, lower, mask) for mask in halves)
        for i, vector_row in zip(result, rows, strict=True):
            builder.store(vector_row, row(target_pointer, target_first, target_apart, i), align=alignment)
        return context.get_dummy_value()

    return types.none(source, types.intp, types.intp, target, types.intp, types.intp), shuffle


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
    _restrict()
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


def _time_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns, scratch, flags,
):  # fmt: skip
    steps = len(rewards)
    unwanted, chosen = _at(scratch, 2, 0), _at(scratch, 3, 0)
    for left in range(first, last, WIDTH):
        size = min(WIDTH, last - left)
        following_values, following = chosen, _at(scratch, 4, 0)
        for n in range(size):
            following_values[n] = last_values[left + n]
            following[n] = 0
        for t in range(steps - 1, -1, -1):
            if t < steps - 1:
                following_values = _at(next_values, t, left)
            if len(final_values):
                _choose(size, _at(truncated, t, left), _at(final_values, t, left), following_values, chosen)
                following_values = chosen
            # Advantages that nobody asked for are still what the row before needs: two rows take turns.
            current = _at(advantages, t, left) if len(advantages) else _at(scratch, t & 1, 0)
            _row(
                size, gamma, gamma_lambda, _at(rewards, t, left), _at(values, t, left), following_values,
                _at(terminated, t, left), _at(truncated, t, left), following, current,
                _at(returns, t, left) if len(returns) else unwanted,
            )  # fmt: skip
            following = current


# --- env-major: deltas along time, then transposed, so that the chain runs along time with envs side by side ---------


@njit
def _deltas(size, gamma, rewards, values, next_values, terminated, truncated, deltas, closed):
    _restrict()
    for t in range(size):
        ends = terminated[t]
        deltas[t] = _delta(rewards[t], values[t], next_values[t], ends != 0, gamma)
        closed[t] = ends | truncated[t]


@njit
def _flags_to_lanes(size, lines, tile):
    """Bytes LLVM shuffles well by itself."""
    _restrict()
    for t in range(size):
        for n in range(LANES):
            tile[t * LANES + n] = lines[n * BLOCK + t]


@njit
def _to_lanes(size, lines, tile):
    """Whole squares: BLOCK is a multiple of LANES, and what lies behind the last step is never read."""
    for t in range(0, size, LANES):
        _transpose(lines, t, BLOCK, tile, t * LANES, LANES)


@njit
def _from_lanes(size, tile, lines):
    for t in range(0, size, LANES):
        _transpose(tile, t * LANES, LANES, lines, t, BLOCK)


@njit
def _chain(size, gamma_lambda, deltas, closed, advantages):
    """Row t reads row t + 1; the first row of the block after this one becomes the row after the last."""
    _restrict()
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
    _restrict()
    for i in range(size):
        target[i] = source[i]


@njit
def _add(size, advantages, values, returns):
    _restrict()
    for t in range(size):
        returns[t] = advantages[t] + values[t]


def _env_major(
    first, last, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns, scratch, flags,
):  # fmt: skip
    steps = len(rewards)
    advantage_tiles, lines = TILES * TILE, 2 * TILES * TILE  # the delta tiles are at 0
    chosen = _at(scratch, 0, lines + LANES * BLOCK)
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
                line, closed = _at(scratch, 0, lines + lane * BLOCK), _at(flags, 0, TILES * TILE + lane * BLOCK)
                following_values = _at(next_values, start, n)
                if stop == steps:
                    _copy(size - 1, following_values, chosen)
                    chosen[size - 1] = last_values[n]
                    following_values = chosen
                if len(final_values):
                    _choose(size, _at(truncated, start, n), _at(final_values, start, n), following_values, chosen)
                    following_values = chosen
                _deltas(
                    size, gamma, _at(rewards, start, n), _at(values, start, n), following_values,
                    _at(terminated, start, n), _at(truncated, start, n), line, closed,
                )  # fmt: skip
                if few:
                    carry = scratch[0, advantage_tiles + lane]
                    scratch[0, advantage_tiles + lane] = _chain_of_one(size, gamma_lambda, closed, line, carry)
                elif lane == LANES - 1 or n == right - 1:
                    _to_lanes(size, _at(scratch, 0, lines), _at(scratch, 0, tile * TILE))
                    _flags_to_lanes(size, _at(flags, 0, TILES * TILE), _at(flags, 0, tile * TILE))
            if not few:
                _chain(size, gamma_lambda, _at(scratch, 0, 0), _at(flags, 0, 0), _at(scratch, 0, advantage_tiles))
            for n in range(left, right):
                tile, lane = divmod(n - left, LANES)
                line = _at(scratch, 0, lines + lane * BLOCK)
                if lane == 0 and not few:
                    _from_lanes(size, _at(scratch, 0, advantage_tiles + tile * TILE), line)
                if len(advantages):
                    _copy(size, line, _at(advantages, start, n))
                if len(returns):
                    _add(size, line, _at(values, start, n), _at(returns, start, n))


# --- many spans at once ----------------------------------------------------------------------------------------------


def _in_parallel(
    kernel, bounds, rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
    advantages, returns, scratch, flags,
):  # fmt: skip
    """One of the kernels above, as it was compiled for the serial path, so that the bits cannot depend on the count."""
    for i in prange(len(scratch)):
        kernel(
            bounds[i], bounds[i + 1], rewards, values, next_values, last_values, final_values, terminated, truncated,
            gamma, gamma_lambda, advantages, returns, scratch[i], flags[i],
        )  # fmt: skip


# --- policy ----------------------------------------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # two teams would fight for the same CPUs, and not every layer survives that
_forked = threading.Event()
if multiprocessing.parent_process() is not None and multiprocessing.get_start_method() == "fork":
    _forked.set()  # before this import
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked.set)


def _pool_is_safe() -> bool:
    """Whether this thread may use Numba's pool. GNU OpenMP kills or hangs a forked child; workqueue aborts when two
    Python threads meet in it, and one of them may be in a kernel of the caller's own.
    """
    if _forked.is_set():
        return False
    try:
        numba.get_num_threads()  # launches the pool, and with that settles the layer
    except (ImportError, ValueError):  # there is no layer to be had
        return False
    return numba.threading_layer() != "workqueue" or threading.current_thread() is threading.main_thread()


def version() -> str:
    return f"numba {numba.__version__}"


def targets() -> tuple[str, ...]:
    return ()


def gae_plain(*arguments: object) -> None:
    """There is no short cut."""


@functools.cache
def _signature(dtype: np.dtype[Any]) -> Any:
    """One for all rollouts of a dtype, whatever their strides, so that nothing compiles twice."""
    real = numba.from_dtype(dtype)
    matrix, row = types.Array(real, 2, "A", readonly=True), types.Array(real, 1, "A", readonly=True)
    gates, output = types.Array(types.boolean, 2, "A", readonly=True), types.Array(real, 2, "A")
    scratch, flags = types.Array(real, 2, "C"), types.Array(types.uint8, 2, "C")
    inputs = (types.intp, types.intp, matrix, matrix, matrix, row, matrix, gates, gates, real, real)
    return types.void(*inputs, output, output, scratch, flags)


def _compile(function: Callable[..., None], signature: Any, **options: bool) -> Callable[..., None]:
    compiled: Callable[..., None]
    try:
        # Safe: all that is compiled is in this one file, and the key holds its time and size, Numba's version, the CPU
        # and its features. It does not hold the options: no function may be compiled with two sets of them.
        compiled = njit(signature, nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no directory to cache in
        compiled = njit(signature, nogil=True, **options)(function)
    return compiled


@functools.cache
def _absent(dtype: np.dtype[Any]) -> Any:
    """In place of an array that there is not."""
    return np.empty((0, 0), dtype)


@functools.cache
def _serial(env_major: bool, dtype: np.dtype[Any]) -> Callable[..., None]:
    return _compile(_env_major if env_major else _time_major, _signature(dtype))


@functools.cache
def _parallel(dtype: np.dtype[Any]) -> Callable[..., None]:
    """For both layouts: the kernel comes as an argument, by its address, so that a cached copy holds only the loop."""
    serial = _signature(dtype)
    bounds = types.Array(types.intp, 1, "C")
    scratch, flags = (types.Array(array.dtype, 3, "C") for array in serial.args[-2:])
    signature = types.void(types.FunctionType(serial), bounds, *serial.args[2:-2], scratch, flags)
    return _compile(_in_parallel, signature, parallel=True)


def _bounds(size: int, envs: int, num_threads: int) -> list[int]:
    """Where the spans of envs begin, and the end: one span for each thread that pays."""
    spans = min(num_threads, numba.config.NUMBA_NUM_THREADS, size // STEPS_PER_THREAD)
    if spans < 2:
        return [0, envs]
    width = -(-envs // (spans * SPAN_ALIGNMENT)) * SPAN_ALIGNMENT
    return [*range(0, envs, width), envs]


def gae(rollout: Rollout, num_threads: int, target: str | None) -> None:
    rewards, truncated, final_values = rollout.rewards, rollout.truncated, rollout.final_values
    advantages, returns = rollout.advantages, rollout.returns
    envs, dtype = rewards.shape[1], rewards.dtype
    env_major = envs == 1 or rewards.strides[1] != dtype.itemsize
    kernel, absent = _serial(env_major, dtype), _absent(dtype)
    arrays = (
        rewards, rollout.values, rollout.next_values, rollout.last_values,
        absent if final_values is None else final_values, rollout.terminated,
        rollout.terminated if truncated is None else truncated, rollout.gamma, rollout.gamma_lambda,
        absent if advantages is None else advantages, absent if returns is None else returns,
    )  # fmt: skip
    size = (1, 2 * TILES * TILE + (LANES + 1) * BLOCK) if env_major else (5, min(WIDTH, envs))
    flags = (1, TILES * TILE + LANES * BLOCK) if env_major else (0, 0)

    bounds = _bounds(rewards.size, envs, num_threads)
    spans = len(bounds) - 1
    if spans < 2 or not _pool_is_safe() or not _one_at_a_time.acquire(blocking=False):
        kernel(0, envs, *arrays, np.empty(size, dtype), np.empty(flags, np.uint8))
        return
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(spans)
        scratch = np.empty((spans, *size), dtype), np.empty((spans, *flags), np.uint8)
        _parallel(dtype)(kernel, np.array(bounds, np.intp), *arrays, *scratch)
    finally:
        numba.set_num_threads(before)
        _one_at_a_time.release()
