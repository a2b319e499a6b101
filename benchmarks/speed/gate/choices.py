"""What fastgae chooses by itself, each against the other choice in the same run; the floors need no accepted numbers.

  threads            the share of CPU time of other threads than the caller's, of two and of as many as fastgae picks
  streaming stores   results of a rollout well beyond the last-level cache, read right after the call and once again
  CPU targets        the target that runs by itself against every other one

A choice that is never made gives 1, and a thread that is never started 0.
"""

from collections.abc import Callable, Iterator
from time import perf_counter, process_time, thread_time

import numpy as np

import fastgae
from speed.caches import available_memory, beyond_caches, described, from_proc, last_level
from speed.calls import Prepared
from speed.contenders import Contender, compiled_here, targets_of
from speed.machine import usable_cpus
from speed.rollouts import Array
from speed.rows import Row
from speed.table import ORDER, THREADED, WIDE

from .accepted import Line, left_out
from .ratios import compared, timer

# 0.5 of two threads, also beside busy neighbours, who take no CPU time of this process.
SHARE_OF_OTHERS, CALLS = 0.25, 5
# Of the default over any other target: 0.66 to 0.92 was measured on an Intel Xeon, in time-major rollouts from the
# second-level cache, where AVX2 is faster than AVX-512. A wrong default loses more.
TARGETS_GAIN = 0.55
WIDE_GAIN = 1.1  # of the best target over the baseline
STREAMED = 2.2  # 4.1 on a Zen 5, and 1.4 with ordinary stores
READINGS = 40  # of the results that were written last
BEYOND = 4  # times the last-level cache
WIDTH = 1024  # envs of the rollout beyond the caches: a row of each array fits into L1
LAST_ROWS = 8  # small enough for the L2 of every CPU, beside what the call read and wrote with them
LINE = 16  # numbers of a cache line
BYTES_PER_STEP = 17
# The flags in /proc/cpuinfo of a CPU that can run a target, best target first.
CPU_FLAGS = {"avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, "avx2": {"avx2"}}


def check() -> Iterator[Line]:
    cpp = fastgae.backends()[0]
    if not cpp.available:
        yield left_out("choices", "the compiled backend cannot run here")
        return
    yield best_target(cpp.targets)
    yield from targets(targets_of(cpp))
    yield from threads() if usable_cpus() > 1 else [left_out("threads", "one CPU")]
    steps = beyond_caches(BEYOND) // (WIDTH * BYTES_PER_STEP)
    if steps * WIDTH * BYTES_PER_STEP >= 2 * (last_level() or 0):
        yield streaming(steps)
    else:
        yield left_out("streaming stores", f"{(available_memory() or 0) >> 20} MiB free, caches: {described()}")


def best_target(chosen: tuple[str, ...]) -> Line:
    """Compare the target that calls use by themselves with the best one that /proc/cpuinfo allows."""
    best = target_of_cpu()
    return Line("CPU target of cpp", f"{chosen[0]}, the best here: {best or 'unknown'}", best not in (None, chosen[0]))


def target_of_cpu() -> str | None:
    """Return the best target by /proc/cpuinfo, or None elsewhere than on Linux with x86-64."""
    flags = set(from_proc("cpuinfo", "flags").split())
    return next((target for target, needed in CPU_FLAGS.items() if needed <= flags), "baseline") if flags else None


def targets(names: list[str]) -> Iterator[Line]:
    for row in [WIDE, *ORDER] if len(names) > 1 else []:
        prepared = Prepared(row)
        floors = {("cpp", name): TARGETS_GAIN for name in names}
        if row == WIDE:
            floors = {("cpp", "cpp:baseline"): WIDE_GAIN}
        yield from compared(row.name, {name: timer(prepared, name) for name in ["cpp", *names]}, floors)


def threads() -> Iterator[Line]:
    for row in THREADED:
        prepared = Prepared(row)
        for backend in compiled_here():
            assert prepared.right(Contender(backend, backend))  # which starts the threads
            for count in (2, None):
                share = share_of_others(prepared.call(Contender(backend, backend, count)))
                what = f"{row.name}, {backend} with {count or 'its own number of'} threads"
                said = f"{share:.2f} by other threads, floor {SHARE_OF_OTHERS}"
                yield Line(what, said, share < SHARE_OF_OTHERS)


def share_of_others(call: Callable[[], object]) -> float:
    """Return the share of the CPU time of the process that other threads than this one take, after one call."""
    call()
    everyone, own = process_time(), thread_time()
    for _ in range(CALLS):
        call()
    everyone, own = process_time() - everyone, thread_time() - own
    return 1 - own / everyone


def streaming(steps: int) -> Line:
    """Read what a call wrote last, twice: ordinary stores leave it in the caches, streaming stores in memory."""
    prepared = Prepared(Row("well beyond the last-level cache", steps, WIDTH))
    call = prepared.call(Contender("cpp", "cpp"))
    last, other = prepared.outputs[0][:LAST_ROWS].ravel(), np.ones(LAST_ROWS * WIDTH, np.float32)
    # One number of each line, in an order that no hardware can foresee.
    places = np.random.default_rng(0).permutation(last.size // LINE) * LINE
    found = np.empty(places.size, np.float32)
    first, again = [], []
    for _ in range(READINGS):
        call()
        read_seconds(other, places, found)  # the call has displaced the interpreter's own code too
        first.append(read_seconds(last, places, found))
        again.append(read_seconds(last, places, found))
    ratio = min(first) / min(again)
    return Line(f"{prepared.row.name}, read again over read first", f"{ratio:.3g}, floor {STREAMED}", ratio < STREAMED)


def read_seconds(array: Array, places: Array, found: Array) -> float:
    begin = perf_counter()
    np.take(array, places, out=found, mode="clip")
    return perf_counter() - begin
