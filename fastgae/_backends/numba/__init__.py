"""The recursion in Numba: vectorised kernels per memory layout and dtype; large rollouts run them on spans of envs.

    delta = (r + gamma V') - V     V' left out where terminated
    A     = delta + gl A_next      A_next left out where terminated or truncated
    R     = A + V

The first plain call for a layout and dtype compiles for 1 to 4 seconds, the first of any other kind for 5 to 9, and
normalisation for 3; later processes load that in 0.3 seconds. The first large one compiles the parallel loop for
another 2.
"""

import contextlib
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.ma
from numba import __version__ as numba_version
from numba import config, from_dtype, get_num_threads, set_num_threads, threading_layer, types
from numba.core.compiler_lock import global_compiler_lock

from fastgae._backends.numba import general, moments, plain
from fastgae._backends.numba.language import compiled
from fastgae._canonical import BLOCK, Array, Rollout

# A parallel call costs 0.16 ms, in which Numba looks the kernel up, and the wait for the slower core. Best of many on
# two shared cores, one thread and two: env-major 1.9 and 1.5 ms for 1 M float32 steps, 4.1 and 3.0 for 2 M, 61 and 32
# for 16 M; time-major, which memory bounds, 0.6 and 1.1, 1.4 and 1.6, 16 and 17. A core that others hold costs 10 ms.
STEPS_PER_THREAD = 1024 * 1024
SPAN_ALIGNMENT = 64  # envs, so that no two threads write to one cache line

_BOOL = np.dtype(bool)

# Two teams would fight for the same CPUs, and not every layer survives that. Ctrl-C can come between any two
# instructions, also before the lock is released: an RLock can be taken again by the thread's next call,
# which then releases both.
_one_at_a_time = threading.RLock()
_forked = threading.Event()
if multiprocessing.parent_process() is not None and multiprocessing.get_start_method() == "fork":
    _forked.set()  # before this import
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked.set)


def _llvm_lock() -> Any:
    """Return the lock that is held whenever LLVM is called, also outside of the compiler; it has no public name."""
    from llvmlite.binding import ffi  # here, for where neither is installed it is Numba that is missing

    return getattr(getattr(ffi.lib, "_lock", None), "_lock", None)


# What Numba would import before its first call, numpy.ma, is imported above.
FORK_WAITS_FOR = tuple(filter(None, (global_compiler_lock, _llvm_lock())))


def version() -> str:
    return f"numba {numba_version}"


def targets() -> tuple[str, ...]:
    return ()


def gae_plain(*arguments: object) -> None:
    """There is no short cut."""


gae_optional = gae_plain


def gae(rollout: Rollout, num_threads: int, target: str | None) -> None:
    """A plain rollout by the kernels of plain.py, every other by those of general.py."""
    if rollout.is_plain:
        _run(plain, "", rollout.rewards, _plain(rollout), num_threads)
    else:
        _run(general, "", rollout.rewards, _general(rollout), num_threads)


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    """(blocks, N), float64: the sum of x, or of (x - center)^2, over each BLOCK steps that exist, in order of time."""
    steps, envs = matrix.shape
    sums = np.zeros((-(-steps // BLOCK), envs))
    row = np.zeros((1, envs)) if center is None else center[np.newaxis]
    arguments = (matrix, _present(mask, _BOOL), row, row, center is not None, sums, _absent(matrix.dtype))
    _run(moments, "block_sums_", matrix, arguments, num_threads)
    return sums


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    """x = (x - center) scale, in float64 and in place, of the steps that exist."""
    rows = center[np.newaxis], scale[np.newaxis]
    arguments = (matrix, _present(mask, _BOOL), *rows, False, _absent(center.dtype), matrix)
    _run(moments, "rescale_", matrix, arguments, num_threads)


# --- what the kernels take -------------------------------------------------------------------------------------------


@functools.cache
def _absent(dtype: np.dtype[Any]) -> Array:
    """In place of an array that there is not."""
    return np.empty((0, 0), dtype)


def _present(array: Array | None, dtype: np.dtype[Any]) -> Array:
    return _absent(dtype) if array is None else array


def _plain(rollout: Rollout) -> tuple[Any, ...]:
    present = functools.partial(_present, dtype=rollout.rewards.dtype)
    return (
        rollout.rewards, rollout.values, rollout.next_values, rollout.last_values, present(rollout.final_values),
        rollout.terminated, rollout.terminated if rollout.truncated is None else rollout.truncated, rollout.gamma,
        rollout.gamma_lambda, present(rollout.advantages), present(rollout.returns),
    )  # fmt: skip


def _general(rollout: Rollout) -> tuple[Any, ...]:
    """Numbers become matrices without strides; last_values may be a row of an env-major matrix."""
    shape, dtype = rollout.rewards.shape, rollout.rewards.dtype
    present = functools.partial(_present, dtype=dtype)

    def coefficients(given: Any) -> Any:
        return _absent(dtype) if given is None else np.broadcast_to(given, shape)

    return (
        rollout.rewards, rollout.values, rollout.next_values, np.ascontiguousarray(rollout.last_values),
        present(rollout.final_values), rollout.terminated,
        rollout.terminated if rollout.truncated is None else rollout.truncated,
        _present(rollout.mask, _BOOL), coefficients(rollout.gamma), coefficients(rollout.gamma_lambda),
        coefficients(rollout.returns_gamma_lambda), coefficients(rollout.tail_lambda),
        np.zeros(shape[1], dtype) if rollout.last_advantages is None else rollout.last_advantages,
        present(None if rollout.constants is None else rollout.ratios), np.array(rollout.constants or (0, 0, 0), dtype),
        rollout.mask is not None and rollout.mask_passes_values, present(rollout.advantages), present(rollout.returns),
    )  # fmt: skip


# --- how they run ----------------------------------------------------------------------------------------------------


def _signature(module: ModuleType, dtype: np.dtype[Any]) -> Any:
    return types.void(types.intp, types.intp, *module.arguments(from_dtype(dtype)))


@functools.cache
def _serial(module: ModuleType, name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    return compiled(getattr(module, name), _signature(module, dtype))


@functools.cache
def _parallel(module: ModuleType, dtype: np.dtype[Any]) -> Callable[..., None]:
    """One for all kernels of a module: they come as an argument, by address, so that a cached copy holds only the loop,
    and spans are computed as they were compiled for the serial path: the bits cannot depend on the count.
    """
    serial = _signature(module, dtype)
    bounds = types.Array(types.intp, 1, "C")
    signature = types.void(types.FunctionType(serial), bounds, *serial.args[2:])
    return compiled(module.in_parallel, signature, parallel=True)


def _bounds(size: int, envs: int, num_threads: int) -> list[int]:
    """Where the spans of envs begin, and the end: one span for each thread that pays."""
    spans = min(num_threads, config.NUMBA_NUM_THREADS, size // STEPS_PER_THREAD)
    if spans < 2:
        return [0, envs]
    width = -(-envs // (spans * SPAN_ALIGNMENT)) * SPAN_ALIGNMENT
    return [*range(0, envs, width), envs]


def _pool_is_safe() -> bool:
    """Whether this thread may use Numba's pool. GNU OpenMP kills or hangs a forked child; workqueue aborts when two
    Python threads meet in it, and one of them may be in a kernel of the caller's own.
    """
    if _forked.is_set():
        return False
    try:
        get_num_threads()  # launches the pool, and with that settles the layer
    except (ImportError, ValueError):  # there is no layer to be had
        return False
    return threading_layer() != "workqueue" or threading.current_thread() is threading.main_thread()


def _run(module: ModuleType, name: str, matrix: Array, arguments: tuple[Any, ...], num_threads: int) -> None:
    """On the caller's thread, or on spans of envs side by side where that pays and may be."""
    envs, dtype = matrix.shape[1], matrix.dtype
    env_major = envs == 1 or matrix.strides[1] != dtype.itemsize
    kernel = _serial(module, name + ("env_major" if env_major else "time_major"), dtype)
    bounds = _bounds(matrix.size, envs, num_threads)
    if len(bounds) < 3 or not _pool_is_safe() or not _run_in_parallel(module, kernel, bounds, arguments):
        kernel(0, envs, *arguments)


def _run_in_parallel(
    module: ModuleType, kernel: Callable[..., None], bounds: list[int], arguments: tuple[Any, ...]
) -> bool:
    """Run the spans side by side; return False, and run nothing, where another thread does so now."""
    before = get_num_threads()
    try:
        if not _one_at_a_time.acquire(blocking=False):
            return False
        set_num_threads(len(bounds) - 1)
        _parallel(module, arguments[0].dtype)(kernel, np.array(bounds, np.intp), *arguments)
        return True
    finally:
        set_num_threads(before)
        with contextlib.suppress(RuntimeError):  # when this thread does not hold it, or no longer
            while True:
                _one_at_a_time.release()


def _nothing():
    pass


compiled(_nothing, types.void())  # a Numba that cannot compile here fails at its import, and the next backend is used
