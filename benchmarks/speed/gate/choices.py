"""The second check of the gate: what fastgae chooses by itself, each against the other choice in the same run.

  threads            how long a caller computes with two threads, and with as many as fastgae picks, against one
  streaming stores   a rollout well beyond the last-level cache, against the same memory in calls too small to stream
  CPU targets        the target that runs by itself against every other one

Each is a ratio of this build to itself, so its floor needs no accepted number. A choice that is never made gives 1.
"""

from collections.abc import Callable, Iterator, Mapping
from time import thread_time
from timeit import Timer
from typing import Any

import fastgae
from speed.caches import available_memory, beyond_caches, described, last_level
from speed.calls import Prepared
from speed.contenders import Contender, targets_of
from speed.machine import usable_cpus
from speed.rows import Row
from speed.table import ORDER, THREADED
from speed.timing import Clock, in_turn

from .verdicts import RED, Line, Report

SECONDS, RETRIES = 0.25, 9  # for each call of a comparison; for each one below its floor
THREADS_GAIN = 1.3  # 1.8 to 2.0 beside busy neighbours
STREAMING_GAIN = 1.08  # 1.16 to 1.3 on a Zen 5
TARGETS_GAIN = 0.88  # equal calls from memory differ by up to 10 per cent beside a busy neighbour, best over best
BEYOND = 4  # times the last-level cache
WIDTH = 1024  # envs of the rollout beyond the caches: a row of each array fits into L1
PART_BYTES = 4 << 20  # of one of the small calls; also at most an eighth of the last-level cache
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
        timers = {name: prepared.timer(Contender(name, name)) for name in ["cpp", *names]}
        yield compared(row.name, timers, TARGETS_GAIN)


def threads() -> Iterator[Line]:
    """Compare the time that the calling thread computes, which others who want the CPUs do not change."""
    for row in THREADED:
        prepared = Prepared(row)
        one = prepared.timer(Contender("one", "cpp", 1), thread_time)
        for name, count in (("2 threads", 2), ("num_threads=None", None)):
            timers = {name: prepared.timer(Contender(name, "cpp", count), thread_time), "1 thread": one}
            yield compared(row.name, timers, THREADS_GAIN)


def streaming(steps: int) -> Line:
    prepared = Prepared(Row("well beyond the last-level cache", steps, WIDTH))
    timers = {"one call": prepared.timer(Contender("cpp", "cpp")), "in parts": Timer(parts(prepared))}
    return compared(prepared.row.name, timers, STREAMING_GAIN)


def steps_beyond() -> int:
    return beyond_caches(BEYOND) // (WIDTH * BYTES_PER_STEP)


def parts(prepared: Prepared) -> Callable[[], None]:
    """Return a function that computes the same memory in many calls. Their results differ at the seams."""
    size = min(PART_BYTES, (last_level() or 8 * PART_BYTES) // 8)
    rows = max(1, size // (WIDTH * BYTES_PER_STEP))
    given: dict[str, Any] = {"last_values": prepared.arguments["last_values"], "num_threads": 1, "backend": "cpp"}
    arrays = [prepared.arguments[name] for name in ("rewards", "values", "terminated")]
    steps = prepared.row.steps
    # From the end to the start, as the one call walks.
    spans = [slice(max(0, last - rows), last) for last in range(steps, 0, -rows)]
    calls = [([a[span] for a in arrays], {**given, "out": tuple(a[span] for a in prepared.outputs)}) for span in spans]

    def run() -> None:
        for positional, named in calls:
            fastgae.gae(*positional, **named)

    return run


def compared(what: str, timers: Mapping[str, Timer], floor: float) -> Line:
    """Compare the first call with the fastest of the others, best sample over best sample.

    A sample is one call, because a short one finds a moment in which nobody else uses the CPUs and the memory. A ratio
    below the floor is measured again, and all samples count.
    """
    clocks = [(Clock(timer, number=1),) for timer in timers.values()]
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(1 + RETRIES):
        for name, samples in zip(timers, in_turn(clocks, [SECONDS] * len(clocks)), strict=True):
            best[name] = min(best[name], *(seconds for (seconds,) in samples))
        choice, *others = timers
        other = min(others, key=best.__getitem__)
        ratio = best[other] / best[choice]
        if ratio >= floor:
            break
    return line(what, choice, other, ratio, floor)


def line(what: str, choice: str, other: str, ratio: float, floor: float) -> Line:
    return Line((what, choice, other, f"{ratio:.2f}", f"{floor:g}"), RED if ratio < floor else "")
