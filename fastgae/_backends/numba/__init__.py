"""The recursion in Numba: plain loops (kernel.py), which large rollouts run on spans of envs side by side.

A kernel is compiled for a layout, a dtype and the options that a call has: a mask, coefficients in arrays, importance
ratios, and a second recursion of either kind. The first call of a kernel takes 1 to 2 seconds of a CPU's time, and
the parallel loop 1 more. Later processes load it in 0.02 seconds.
"""

import contextlib
import multiprocessing
import threading
from collections.abc import Callable
from operator import is_, itemgetter
from typing import Any

import numpy as np
import numpy.ma
from numba import __version__ as numba_version
from numba import config, get_num_threads, set_num_threads, threading_layer
from numba.core.compiler_lock import global_compiler_lock

from fastgae._backends.numba import moments
from fastgae._backends.numba.arguments import FEWEST_STEPS, arguments_of, cut, flags, flat, is_env_major
from fastgae._backends.numba.compiled import compiled, parallel, signature
from fastgae._backends.numba.kernel import LANES, env_major, time_major
from fastgae._backends.numba.trees import tree_scan
from fastgae._call import MOMENT_STEPS, NEW, WORKING_DTYPES, Array, Call, GAEResult
from fastgae._equation.arrays import fill
from fastgae._equation.exact_sums import sums_by_numpy
from fastgae._equation.trees import Trees
from fastgae._support import memory
from fastgae._support.threads import is_forked, usable_cpus

RECURSIONS = ("gae", "tree")
exact_sums = sums_by_numpy  # because to compile a kernel of its own would take the first call a second

# A parallel call costs 0.05 ms, in which Numba looks the kernel up, and has to wait for the slower core. Best of many
# on two shared cores, one thread and two: env-major 1.5 and 1.0 ms for 1 M float32 steps, 2.7 and 1.6 for 2 M, 45 and
# 23 for 16 M; time-major, which memory bounds, 0.7 and 0.9, 1.6 and 1.3, 28 and 15. If other programs use a core, the
# wait is 10 ms.
STEPS_PER_THREAD = 1024 * 1024
SPAN_ALIGNMENT = 64  # envs, so that no two threads write to one cache line

# What the short cut reads of a call; all else must have its default.
READ = (
    "rewards", "values", "terminated", "truncated", "last_values", "next_values", "gamma", "gae_lambda", "time_axis",
    "out",
)  # fmt: skip
_read = itemgetter(*map(Call._fields.index, READ))
_others = itemgetter(*[place for place, name in enumerate(Call._fields) if name not in READ])
DEFAULTS = tuple(default for name, default in Call._field_defaults.items() if name not in READ)
BOOL = np.dtype(bool)
IN_C_ORDER = 0x101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED: reading two flags by name takes twice as long
LARGEST = 2**63  # NumPy reads larger integers as objects

_kernels: dict[tuple[Any, ...], Any] = {}  # compiled


# Only one Python thread at a time uses Numba's pool: two teams of threads would fight for the same CPUs, and not every
# threading layer survives that. Ctrl-C can come between any two instructions, so it can leave this lock held. It is an
# RLock because the thread's next call can then take it again, and releases it as often as it is held.
_one_at_a_time = threading.RLock()
_by_fork = multiprocessing.parent_process() is not None and multiprocessing.get_start_method() == "fork"


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


def short_cut(given: tuple[Any, ...], num_threads: int, target: str | None) -> GAEResult | None:
    """Compute a call in C order without options, and without the checks, which take longer; None: any other call."""
    call = Call(*given)
    rewards, values, terminated, truncated, last, following, gamma, gae_lambda, axis, out = _read(call)
    if not (
        type(rewards) is np.ndarray and rewards.ndim == 2 and rewards.size and rewards.dtype in WORKING_DTYPES
        and type(axis) is int and (axis == 0 or axis == 1 < rewards.shape[1])  # one step and one value more have gaps
        and type(gamma) is type(gae_lambda) is float and 0 <= gamma <= 1 and 0 <= gae_lambda <= 1
        and (out is None or (type(out) is tuple and len(out) == 2 and not out[0] is out[1] is None))
        and all(map(is_, _others(call), DEFAULTS))
    ):  # fmt: skip
        return None
    dtype, shape, envs = rewards.dtype, rewards.shape, rewards.shape[1 - axis]
    if type(last) in (float, int) and -LARGEST < last < LARGEST:
        with np.errstate(under="ignore"):
            last = np.full(envs, last, dtype)
    one_longer = last is None and following is None
    of_values = (shape[0] + 1 - axis, shape[1] + axis) if one_longer else shape
    inputs = rewards, values, terminated, truncated, last, following
    outputs = [array for array in out or () if array is not None and array is not NEW]
    if not (
        _is(rewards, dtype, shape) and _is(values, dtype, of_values)
        and (_is(terminated, BOOL, shape) or (terminated is truncated is None and last is not None))
        and (truncated is None or (following is not None and _is(truncated, BOOL, shape)))
        and (last is None or (following is None and _is(last, dtype, (envs,))))
        and (following is None or _is(following, dtype, shape))
        and all(_is(array, dtype, shape) and array.flags.writeable for array in outputs)
    ):  # fmt: skip
        return None
    for place, array in enumerate(outputs):
        others = (*inputs, *outputs[:place])
        if any(other is not None and np.may_share_memory(array, other) for other in others):
            return None
    results: Any = [memory.empty_like(rewards) if array is NEW else array for array in out or (NEW, NEW)]
    arrays: Any = [rewards, values, terminated, truncated, following, *results]
    if axis:
        arrays = [None if array is None else array.T for array in arrays]
    rewards, values, terminated, truncated, following, *out = arrays
    call = Call(rewards, values, terminated, truncated, last, following, gamma=gamma, gae_lambda=gae_lambda, out=out)
    _compute(call, num_threads)
    return GAEResult(*results)


def _is(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    return (
        type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == shape
        and array.flags.num & IN_C_ORDER == IN_C_ORDER
    )


def gae(call: Call, num_threads: int, target: str | None) -> None:
    """Compute a call."""
    if call.recursion == "tree":
        with np.errstate(all="ignore"):  # NaN and infinity are data here
            fill(Trees(call, _tree_scan), call)
        return
    for matrix, filled in zip(call.out, _compute(call, num_threads), strict=True):
        _copy_back(matrix, filled, is_env_major(call.rewards))


def _tree_scan(*given: Array | None) -> tuple[Any, Any]:
    y = np.empty_like(given[2])
    _run(tree_scan, y, len(y), (*given, y), 3, 1)
    return y, given[-1]


def _compute(call: Call, num_threads: int) -> tuple[Array, Array]:
    """Compute a call, a long trajectory in pieces, and return the flat results."""
    rewards, (steps, envs), by_env = call.rewards, call.rewards.shape, is_env_major(call.rewards)
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        arguments = arguments_of(call, by_env)
    pieces = cut(arguments) if envs == 1 and steps >= FEWEST_STEPS else None
    if pieces is None or not _run_pieces(*pieces, rewards, num_threads):
        _run(env_major if by_env else time_major, rewards, envs, arguments, 2, num_threads)
    return arguments.advantages, arguments.returns


def _run_pieces(warm_up: Any, own: Any, begin: Array, rewards: Array, num_threads: int) -> bool:
    """Return whether each piece came to its own steps with the bits that the next one begins with."""
    _run(env_major, rewards, LANES, warm_up, 2, num_threads)
    carried = begin.tobytes()
    _run(env_major, rewards, LANES, own, 2, num_threads)
    return begin.tobytes() == carried


def _copy_back(matrix: Array | None, filled: Array, by_env: bool) -> None:
    """Write results to a matrix whose memory has gaps."""
    if matrix is not None and not np.may_share_memory(matrix, filled):
        target = matrix.T if by_env else matrix
        target[...] = filled.reshape(target.shape)


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    """Return (blocks, N) sums in float64: of x, or of (x - center)^2, over each MOMENT_STEPS steps that exist."""
    (steps, envs), by_env = matrix.shape, is_env_major(matrix)
    sums = np.zeros((-(-steps // MOMENT_STEPS), envs))
    row = np.zeros(envs) if center is None else center
    arguments = steps, envs, flat(matrix, by_env), flags(mask, by_env), row, center is not None, sums.ravel()
    function = moments.block_sums_env_major if by_env else moments.block_sums_time_major
    _run(function, matrix, envs, arguments, 1, num_threads)
    return sums


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    """Compute x = (x - center) scale in float64 and in place, for the steps that exist."""
    (steps, envs), by_env = matrix.shape, is_env_major(matrix)
    numbers = flat(matrix, by_env)
    function = moments.rescale_env_major if by_env else moments.rescale_time_major
    _run(function, matrix, envs, (steps, envs, flags(mask, by_env), center, scale, numbers), 1, num_threads)
    _copy_back(matrix, numbers, by_env)


def _run(
    function: Callable[..., None], matrix: Array, envs: int, arguments: tuple[Any, ...], filled: int, num_threads: int
) -> None:
    """Run a kernel: on spans of envs side by side if that is faster."""
    per_row = getattr(getattr(arguments, "gamma", None), "ndim", 0) == 2
    key = (function, matrix.dtype, per_row, *map(type, arguments))
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels[key] = compiled(function, signature((0, envs, *arguments), filled))
    bounds = _bounds(matrix.size, envs, num_threads)
    if len(bounds) < 3 or not _pool_is_safe() or not _run_in_parallel(kernel, bounds, arguments):
        kernel(0, envs, *arguments)


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
    if _by_fork or is_forked():
        return False
    try:
        get_num_threads()  # This launches the pool, and threading_layer() raises before that.
    except (ImportError, ValueError):  # Numba raises these if no layer works.
        return False
    return threading_layer() != "workqueue" or threading.current_thread() is threading.main_thread()


def _run_in_parallel(kernel: Any, bounds: list[int], arguments: tuple[Any, ...]) -> bool:
    """Run the spans side by side; return False, and run nothing, while another thread uses the pool."""
    before = get_num_threads()
    try:
        if not _one_at_a_time.acquire(blocking=False):
            return False
        set_num_threads(len(bounds) - 1)
        parallel(kernel.nopython_signatures[0])(kernel, np.array(bounds, np.intp), tuple(arguments))
        return True
    finally:
        set_num_threads(before)
        with contextlib.suppress(RuntimeError):  # release() raises it when this thread does not hold the lock.
            while True:
                _one_at_a_time.release()


def _nothing():
    pass


# A Numba that cannot compile here must fail at this import, because the next backend is then used.
compiled(_nothing, signature((), 0))
