"""What fastgae chooses by itself, each against the other choice in the same run; the floors need no accepted numbers.

  threads            how long a caller computes with two threads, and with as many as fastgae picks, against one
  streaming stores   results of a rollout well beyond the last-level cache, read right after the call and once again
  CPU targets        the target that runs by itself against every other one

A choice that is never made gives 1.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import fastgae
from speed.caches import available_memory, beyond_caches, described, last_level
from speed.calls import Prepared
from speed.contenders import Contender, runs_here, targets_of
from speed.machine import usable_cpus
from speed.rollouts import Array
from speed.rows import Row
from speed.table import ORDER, THREADED, WIDE

from .accepted import Line, left_out
from .ratios import compared, timer

THREADS_GAIN = 1.3  # 1.8 to 2.0 beside busy neighbours
TARGETS_GAIN = 0.8  # equal calls differed by up to 14 per cent beside seven busy neighbours, best over best
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
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), None)
    if flags is None:
        return None
    return next((target for target, needed in CPU_FLAGS.items() if needed <= flags), "baseline")


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
        for backend in runs_here():
            if backend != "numpy":
                counts = {f"{backend}, {count} threads": count for count in (1, 2, None)}
                one, *more = counts
                timers = {name: timer(prepared, backend, count) for name, count in counts.items()}
                assert prepared.right(Contender(backend, backend))
                yield from compared(row.name, timers, {(name, one): THREADS_GAIN for name in more})


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
