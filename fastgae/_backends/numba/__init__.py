"""The recursion in Numba: vectorised kernels (kernel.py), which large rollouts run on spans of envs.

A kernel is compiled for a layout, a dtype and the options that a call has: no options; skipped steps, coefficients in
arrays and A_T; and with those, a second lambda, tail-normalized advantages, or importance ratios. The first call of a
kernel takes 1 to 2 seconds of a CPU's time, with options 2 to 4. Normalisation and the parallel loop take 1 each. Later
processes load a kernel in 0.02 seconds.
"""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.ma
from numba import __version__ as numba_version
from numba import config, get_num_threads, set_num_threads, threading_layer, types
from numba.core.compiler_lock import global_compiler_lock

from fastgae._backends.numba import moments
from fastgae._backends.numba.compiled import compiled, parallel, signature
from fastgae._backends.numba.kernel import env_major, time_major
from fastgae._backends.numba.moments import MaskedMatrix
from fastgae._backends.numba.pieces import cut
from fastgae._backends.numba.short_cut import BOOL, EMPTY, recognised
from fastgae._backends.numba.trees import tree_scan as tree_scan
from fastgae._call import Array, Call, GAEResult
from fastgae._canonical import MOMENT_STEPS, CanonicalRollout, canonical_rollout
from fastgae._exact_sums import sums_by_numpy
from fastgae._threads import usable_cpus

Function = Callable[..., None]

RECURSIONS = ("gae",)
exact_sums = sums_by_numpy  # because the first call would compile a separate kernel for a second

# A parallel call costs 0.05 ms, in which Numba looks the kernel up, and has to wait for the slower core. Best of many
# on two shared cores, one thread and two: env-major 1.9 and 1.5 ms for 1 M float32 steps, 4.1 and 3.0 for 2 M, 61 and
# 32 for 16 M; time-major, which memory bounds, 0.6 and 1.1, 1.4 and 1.6, 16 and 17. If other programs use a core, the
# wait is 10 ms.
STEPS_PER_THREAD = 1024 * 1024
SPAN_ALIGNMENT = 64  # envs, so that no two threads write to one cache line

OPTIONS = slice(
    len(CanonicalRollout._fields) - len(CanonicalRollout._field_defaults), None
)  # a kernel is compiled for those of a call

_kernels: dict[tuple[Any, ...], Any] = {}  # compiled

# Only one Python thread at a time uses Numba's pool: two teams of threads would fight for the same CPUs, and not every
# threading layer survives that. Ctrl-C can come between any two instructions, so it can leave this lock held. It is an
# RLock because the thread's next call can then take it again, and releases it as often as it is held.
_one_at_a_time = threading.RLock()
_forked = threading.Event()
if multiprocessing.parent_process() is not None and multiprocessing.get_start_method() == "fork":
    _forked.set()  # This process was forked before this module was imported.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked.set)


def _llvm_lock() -> Any:
    """Return the lock that is held whenever LLVM is called, also outside the compiler; it has no public name."""
    from llvmlite.binding import ffi  # Not at the top: if neither is installed, the error must name Numba.

    return getattr(getattr(ffi.lib, "_lock", None), "_lock", None)


# numpy.ma is imported above because Numba imports it before its first call, and an import holds a lock, too.
FORK_WAITS_FOR = tuple(filter(None, (global_compiler_lock, _llvm_lock())))


def version() -> str:
    return f"numba {numba_version}"


def targets() -> tuple[str, ...]:
    return ()


def short_cut(call: tuple[Any, ...], num_threads: int, target: str | None) -> GAEResult | None:
    """Compute a common call without the checks of _canonical, or return None and write nothing."""
    found = recognised(call)
    if found is None:
        return None
    arguments, result = found
    _compute(arguments, num_threads)
    return result


def gae(call: Call, num_threads: int, target: str | None) -> None:
    """Compute a call."""
    _compute(_arguments(canonical_rollout(call)), num_threads)


def _arguments(rollout: CanonicalRollout) -> CanonicalRollout:
    """Return the arguments of a kernel: arrays in place of what every kernel takes, or every kernel with options."""
    dtype, shape = rollout.rewards.dtype, rollout.rewards.shape
    given: dict[str, Any] = {
        name: EMPTY[BOOL if name == "truncated" else dtype]
        for name in ("final_values", "truncated", "advantages", "returns")
        if getattr(rollout, name) is None
    }
    if rollout.is_plain:
        return rollout._replace(**given)
    coefficients = {name: number for name, number in rollout._asdict().items() if isinstance(number, np.floating)}
    given |= {name: _as_matrix(number, shape) for name, number in coefficients.items()}
    if rollout.constants is not None:
        given["constants"] = np.array(rollout.constants)
    return rollout._replace(
        mask=_as_matrix(np.True_, shape) if rollout.mask is None else rollout.mask,
        last_advantages=np.zeros(shape[1], dtype) if rollout.last_advantages is None else rollout.last_advantages,
        **given,
    )


def _as_matrix(number: Any, shape: tuple[int, ...]) -> Array:
    """Return a matrix without strides."""
    return np.ndarray(shape, number.dtype, np.array([number]), 0, (0, 0))


def _compute(arguments: CanonicalRollout, num_threads: int) -> None:
    """Run the kernel, on a long trajectory without options in pieces."""
    if arguments.mask is None and arguments.rewards.shape[1] == 1:
        pieces = cut(arguments)
        if pieces is not None:
            _run_sweep(pieces.warm_up, num_threads)
            carried = pieces.begin.tobytes()
            _run_sweep(pieces.own, num_threads)
            if pieces.begin.tobytes() == carried:
                return
    _run_sweep(arguments, num_threads)


def _run_sweep(arguments: CanonicalRollout, num_threads: int) -> None:
    _run(env_major if _is_env_major(arguments.rewards) else time_major, arguments.rewards, arguments, num_threads)


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    """Return (blocks, N) sums in float64: of x, or of (x - center)^2, over each MOMENT_STEPS steps that exist."""
    steps, envs = matrix.shape
    sums = np.zeros((-(-steps // MOMENT_STEPS), envs))
    row = np.zeros(envs) if center is None else center
    arguments = MaskedMatrix(matrix, EMPTY[BOOL] if mask is None else mask, row, row, center is not None, sums)
    function = moments.block_sums_env_major if _is_env_major(matrix) else moments.block_sums_time_major
    _run(function, matrix, arguments, num_threads)
    return sums


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    """Compute x = (x - center) scale in float64 and in place, for the steps that exist."""
    exists = EMPTY[BOOL] if mask is None else mask
    arguments = MaskedMatrix(matrix, exists, center, scale, False, EMPTY[np.dtype(np.float64)])
    function = moments.rescale_env_major if _is_env_major(matrix) else moments.rescale_time_major
    _run(function, matrix, arguments, num_threads)


def _bounds(size: int, envs: int, num_threads: int) -> list[int]:
    """Return where each span of envs begins, and the end of the last one: one span for each thread that pays."""
    spans = size // STEPS_PER_THREAD
    if spans >= 2:  # only then, because counting the CPUs takes a microsecond
        spans = min(spans, num_threads or usable_cpus(), config.NUMBA_NUM_THREADS)
    if spans < 2:
        return [0, envs]
    width = -(-envs // (spans * SPAN_ALIGNMENT)) * SPAN_ALIGNMENT
    return [*range(0, envs, width), envs]


def _pool_is_safe() -> bool:
    """Return whether this thread may use Numba's pool.

    GNU OpenMP kills or hangs a forked child. The layer workqueue aborts when two Python threads use it at once, and the
    other thread may run one of the caller's own kernels.
    """
    if _forked.is_set():
        return False
    try:
        get_num_threads()  # This launches the pool, and threading_layer() raises before that.
    except (ImportError, ValueError):  # Numba raises these if no layer works.
        return False
    return threading_layer() != "workqueue" or threading.current_thread() is threading.main_thread()


def _is_env_major(matrix: Array) -> bool:
    return matrix.shape[1] == 1 or matrix.strides[1] != matrix.itemsize


def _run(function: Function, matrix: Array, arguments: tuple[Any, ...], num_threads: int) -> None:
    """Run a kernel: on spans of envs in parallel if that is faster and possible."""
    key = (function, matrix.dtype, *map(type, arguments[OPTIONS]))
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels[key] = compiled(function, signature(arguments))
    envs, arguments = matrix.shape[1], tuple(arguments)
    bounds = _bounds(matrix.size, envs, num_threads)
    if len(bounds) < 3 or not _pool_is_safe() or not _run_in_parallel(kernel, bounds, arguments):
        kernel(0, envs, arguments)


def _run_in_parallel(kernel: Any, bounds: list[int], arguments: tuple[Any, ...]) -> bool:
    """Run the spans side by side; return False, and run nothing, while another thread uses the pool."""
    before = get_num_threads()
    try:
        if not _one_at_a_time.acquire(blocking=False):
            return False
        set_num_threads(len(bounds) - 1)
        parallel(kernel.nopython_signatures[0])(kernel, np.array(bounds, np.intp), arguments)
        return True
    finally:
        set_num_threads(before)
        with contextlib.suppress(RuntimeError):  # release() raises it when this thread does not hold the lock.
            while True:
                _one_at_a_time.release()


def _nothing():
    pass


# A Numba that cannot compile here must fail at this import, because the next backend is then used.
compiled(_nothing, types.void())
