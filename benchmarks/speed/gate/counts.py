"""Numbers that are the same in every run, and on every machine: what a call takes beside its time, at most.

memory         bytes per step beside arguments and results at the peak of a call, and of a function of fastgae.compat
page faults    of a call whose results the caller drops, so that their memory is used again
reads          bytes that fastgae.data.compute reads, in sizes of the source
compilations   of Numba's kernels in a process that finds them in the cache
waiting        1 if long calls in one thread keep the calls in another one waiting
launches       of the kernels for a GPU, by Triton's interpreter
GPU            registers, bytes of stack, instructions and cycles of a loop, without and with waits for loads, in the
               machine code of sm_90, and the Python functions that a call calls once it has been made before
"""

import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np

import fastgae
from fastgae.compat import verl
from speed import memory, places
from speed.caches import from_proc
from speed.calls import Prepared, prepared
from speed.contenders import Contender, compiled_here, one_thread, runs_here
from speed.rows import FRESH, case
from speed.table import PEAK_MEMORY

from . import accepted
from .accepted import Line, left_out
from .alone import of_process

# More than accepted that is allowed: the process grows by whole pages and threads' stacks.
MORE = {"bytes": 0.8, "faults": 0.5, "reads": 0.5}
STEPS, ENVS = 4096, 16  # of the arrays for fastgae.compat
LONG_CALLS = 8
PLACE = Path(fastgae.__file__).parents[1]
Found = Iterator[tuple[str, float]]


def check() -> Iterator[Line]:
    known = accepted.read("counts")
    for what, number in every():
        if isinstance(number, ImportError):
            yield left_out(what, number)
        else:
            most = known.get(what)
            red = most is None or number > most + MORE.get(what.partition(",")[0], 0)
            yield Line(what, f"{number:.4g}, accepted {most}", red)


def accept() -> Iterator[str]:
    """Write what is counted here; what cannot be counted here stays."""
    found = {what: round(number, 2) for what, number in every() if not isinstance(number, ImportError)}
    return accepted.write("counts", accepted.read("counts") | found)


def every() -> Iterator[tuple[str, float | ImportError]]:
    for count in COUNTS:
        try:
            yield from count()
        except ImportError as error:
            yield count.__name__, error


def peaks() -> Found:
    for row in PEAK_MEMORY:
        ready = prepared(row)
        for each in one_thread(compiled_here()):
            assert ready.right(each)
            yield f"bytes, {row.name}, {each.name}", memory.bytes_per_step(ready, each)


def peaks_of_compat() -> Found:
    """Call the functions that take arrays with the arguments of the tests, made larger."""
    sys.path.append(str(places.ROOT / "tests"))
    from support import compat_calls as calls
    from support.functions import arrays_of

    sizes = {calls.STEPS: STEPS, calls.ENVS: ENVS, calls.STEPS + 1: STEPS + 1, calls.STEPS - 1: STEPS - 1}
    # Beside the memory that whitening takes, nobody would see a copy in verl's hook, which leaves it to verl.
    of_hook = {"verl hook": (verl._not_whitened, *calls.CALLS["verl"][1:])}
    for name, (function, arguments, numbers) in {**calls.CALLS, **calls.NUMPY_CALLS, **of_hook}.items():
        if name == "labml":  # it knows its size
            continue
        given = dict(arguments)
        for each, array in arguments.items():
            if isinstance(array, np.ndarray) and array.ndim:
                larger = np.resize(array, tuple(sizes.get(length, length) for length in array.shape))
                floats = array.dtype.kind == "f" or each in numbers
                given[each] = larger.astype(np.float32) if floats else larger
        if "env_id" in given:
            given |= {"env_id": np.tile(np.arange(ENVS), (STEPS, 1)), "numenv": ENVS}
        result = function(**given)  # which also imports what it needs
        outputs = sum(each.nbytes for each in arrays_of(result) if isinstance(each, np.ndarray))
        steps = max(np.size(each) for each in given.values())
        yield f"bytes, compat {name}", (memory.traced_peak(lambda: function(**given)) - outputs) / steps  # noqa: B023


def page_faults() -> Found:
    call, times = prepared(case("plain", 512, 2048, outputs=FRESH)).call(Contender("cpp", "cpp")), 20
    for _ in range(times):
        call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        call()
    yield "faults, 512×2048, cpp", (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times


def reads() -> Found:
    from speed.data.episodes import write_episodes, write_scattered

    with tempfile.TemporaryDirectory() as folder:
        parquet, arrays = Path(folder, "parquet.parquet"), Path(folder, "arrays.npz")
        rollout = case("plain", 1000, 300).arguments()
        np.savez(arrays, **rollout)
        write_episodes(parquet, 300_000, 200)
        for source in (parquet, write_scattered(Path(folder, "scattered.parquet"), parquet), arrays):
            before = int(from_proc("self/io", "rchar"))
            fastgae.data.compute(
                source,
                Path(folder, f"{source.stem}-out.parquet"),
                ends="terminated",
                memory="64MB",
                progress=False,
                num_threads=1,
            )
            yield f"reads, {source.stem}", (int(from_proc("self/io", "rchar")) - before) / source.stat().st_size


def compilations() -> Found:
    if "numba" not in runs_here():
        raise ImportError("Numba cannot run here")
    with tempfile.TemporaryDirectory() as folder:
        found = [of_process("compilations", place=PLACE, NUMBA_CACHE_DIR=folder) for _ in range(2)]
    yield "compilations of Numba, with a cache", found[1]["compilations"]


def waiting() -> Found:
    for backend in compiled_here():
        long, short = (Prepared(case("V-trace", steps, 2048, env_major=True)) for steps in (8192, 128))
        assert all(each.right(Contender(backend, backend)) for each in (long, short))
        yield f"waiting, {backend}", float(kept_waiting(*(each.call(Contender("", backend)) for each in (long, short))))


def kept_waiting(long: Callable[[], object], short: Callable[[], object]) -> bool:
    """Return whether short calls pause for as long as each long call in another thread computes."""
    calls: list[tuple[float, float, float]] = []
    ends: list[float] = []

    def call_often() -> None:
        for _ in range(LONG_CALLS):
            begin, own = perf_counter(), thread_time()
            long()
            calls.append((begin, perf_counter(), thread_time() - own))

    thread = threading.Thread(target=call_often)
    thread.start()
    while thread.is_alive():
        short()
        ends.append(perf_counter())
    thread.join()
    return all(longest_pause(begin, end, ends) >= seconds for begin, end, seconds in calls)


def longest_pause(begin: float, end: float, ends: Sequence[float]) -> float:
    """Return the longest time between two of the ends from the beginning to the end."""
    return max(later - former for former, later in pairwise([begin, *(at for at in ends if begin < at < end), end]))


def launches() -> Found:
    for call, number in of_process("launches", place=PLACE, TRITON_INTERPRET="1").items():
        yield f"launches, {call}", number


def kernels_of_gpus() -> Found:
    for what, number in of_process("kernels", place=PLACE).items():
        yield f"GPU, {what}", number


# Page faults come first, because malloc itself keeps large blocks once a process has freed some.
COUNTS = (page_faults, peaks, peaks_of_compat, reads, compilations, waiting, launches, kernels_of_gpus)
