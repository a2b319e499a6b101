"""The second check of the gate: what fastgae chooses by itself, each against the other choice in the same run.

  threads            how long a caller computes with two threads, and with as many as fastgae picks, against one
  streaming stores   results of a rollout well beyond the last-level cache, read right after the call and once again
  CPU targets        the target that runs by itself against every other one

Each is a ratio of this build to itself, so its floor needs no accepted number. A choice that is never made gives 1. The
clock is that of the calling thread's own work, which others who want the CPUs do not change.
"""

from collections.abc import Iterator, Mapping
from time import perf_counter, thread_time
from timeit import Timer

import numpy as np

import fastgae
from speed.caches import available_memory, beyond_caches, described, last_level
from speed.calls import Prepared
from speed.contenders import Contender, targets_of
from speed.machine import usable_cpus
from speed.rollouts import Array
from speed.rows import Row
from speed.table import ORDER, THREADED
from speed.timing import Clock, in_turn

from .verdicts import RED, Line, Report

SECONDS, RETRIES = 0.25, 9  # for each call of a comparison; for each one below its floor
PLACE = 3  # of the sample that counts, from the best one on
READINGS = 40  # of the results that were written last
THREADS_GAIN = 1.3  # 1.8 to 2.0 beside busy neighbours
STREAMED = 2.2  # 4.1 on a Zen 5, and 1.4 with ordinary stores
TARGETS_GAIN = 0.8  # equal calls differed by up to 14 per cent beside seven busy neighbours, best over best
BEYOND = 4  # times the last-level cache
WIDTH = 1024  # envs of the rollout beyond the caches: a row of each array fits into L1
LAST_ROWS = 8  # small enough for the L2 of every CPU, beside what the call read and wrote with them
LINE = 16  # numbers of a cache line
BYTES_PER_STEP = 17

HEADINGS = ("what", "choice", "against", "speed over speed", "floor")


def check() -> Report:
    notes = [f"Caches: {described()}."]
    if not fastgae.backends()[0].available:
        return Report("choices", HEADINGS, [], ["The compiled backend cannot run here."])
    lines = [*targets()]
    if usable_cpus() > 1:
        lines += threads()
    else:
        notes += ["One CPU: threads are not measured."]
    steps = steps_beyond()
    if steps * WIDTH * BYTES_PER_STEP >= 2 * (last_level() or 0):
        lines.append(streaming(steps))
    else:
        notes += [f"{(available_memory() or 0) >> 20} MiB free: too little to go beyond the last-level cache."]
    return Report("choices", HEADINGS, lines, notes)


def targets() -> Iterator[Line]:
    names = targets_of(fastgae.backends()[0])
    for row in ORDER if len(names) > 1 else []:
        prepared = Prepared(row)
        timers = {name: prepared.timer(Contender(name, name), thread_time) for name in ["cpp", *names]}
        yield compared(row.name, timers, TARGETS_GAIN)


def threads() -> Iterator[Line]:
    for row in THREADED:
        prepared = Prepared(row)
        one = prepared.timer(Contender("one", "cpp", 1), thread_time)
        for name, count in (("2 threads", 2), ("num_threads=None", None)):
            timers = {name: prepared.timer(Contender(name, "cpp", count), thread_time), "1 thread": one}
            yield compared(row.name, timers, THREADS_GAIN)


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
    return line(prepared.row.name, "read again", "read first", min(first) / min(again), STREAMED)


def read_seconds(array: Array, places: Array, found: Array) -> float:
    begin = perf_counter()
    np.take(array, places, out=found, mode="clip")
    return perf_counter() - begin


def steps_beyond() -> int:
    return beyond_caches(BEYOND) // (WIDTH * BYTES_PER_STEP)


def compared(what: str, timers: Mapping[str, Timer], floor: float) -> Line:
    """Compare the first call with the fastest of the others, by the third best sample of each.

    A sample is one call, because a short one finds a moment in which nobody else uses the CPUs and the memory. The very
    best one may be an error of a virtual machine's clock. A ratio below the floor is measured again, and all samples
    count.
    """
    clocks = [(Clock(timer, number=1),) for timer in timers.values()]
    best: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(1 + RETRIES):
        for name, samples in zip(timers, in_turn(clocks, [SECONDS] * len(clocks)), strict=True):
            best[name] = sorted([*best[name], *(sample for (sample,) in samples)])[:PLACE]
        choice, *others = timers
        other = min(others, key=lambda name: best[name][-1])
        ratio = best[other][-1] / best[choice][-1]
        if ratio >= floor:
            break
    return line(what, choice, other, ratio, floor)


def line(what: str, choice: str, other: str, ratio: float, floor: float) -> Line:
    return Line((what, choice, other, f"{ratio:.2f}", f"{floor:g}"), RED if ratio < floor else "")
