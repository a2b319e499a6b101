"""A fork while other threads are in calls: the child computes the correct bits, on its own threads, and exits.

Each thread checks the results that it holds while the others drop theirs, whose memory is used again. The child begins
with an empty store of dropped memory.
"""

import os

import pytest

from support.backends import ONE_TARGET, needs_cpp, needs_numba

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")

FORK = """
import os, sys, threading, warnings
import numpy as np, fastgae
from fastgae._support import memory

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of every fork beside threads
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(700, 512)), rng.normal(size=(701, 512))
terminated, mask = rng.random((700, 512)) < 0.1, rng.random((700, 512)) < 0.9
calls = [{}, {"mask": mask}, {"normalize": "global"}, {"tail_normalized": True}]

def compute(options, backend):
    return fastgae.gae(rewards, values, terminated, num_threads=2, backend=backend, **options)

expected = [compute(options, "numpy") for options in calls]
busy, stop = threading.Barrier(9), threading.Event()

wrong = []

def right(which, got):
    return all(np.array_equal(a, b) for a, b in zip(got, expected[which]))

def work(which):
    busy.wait()
    before = compute(calls[which], sys.argv[1])
    while not stop.is_set():
        got = compute(calls[which], sys.argv[1])
        if not (right(which, got) and right(which, before)):
            wrong.append(which)
        before = got

threads = [threading.Thread(target=work, args=[i % len(calls)]) for i in range(8)]
for thread in threads:
    thread.start()
busy.wait()
kept, compiled = compute({}, sys.argv[1]), bool(memory.recycled())
for _ in range(10):
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            counts = memory.recycled()  # of a new store, which holds nothing of the parent's
            assert [counts.get(name, 0) for name in ("held", "hits", "misses")] == [0, 0, 0], counts
            assert all(right(which, compute(options, sys.argv[1])) for which, options in enumerate(calls))
            assert right(0, kept)
            assert not compiled or (counts["limit"] and memory.recycled()["held"] and memory.recycled()["hits"])
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0, "the child hung, died or was wrong"
    assert not compiled or memory.recycled()["misses"], "the parent keeps what it has"
stop.set()
for thread in threads:
    thread.join()
assert not wrong, wrong
print("done")
"""


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_fork_beside_busy_threads(python, backend):
    assert python(FORK, backend) == "done"


WHILE_A_THREAD_MEASURES = """
import os, signal, threading, warnings
import numpy as np
import fastgae
from fastgae import _core

warnings.simplefilter("ignore", DeprecationWarning)
stop, ones = threading.Event(), np.ones((512, 8192), np.float32)

def work():
    while not stop.is_set():
        fastgae.gae(ones, ones, ones > 0, last_values=ones[0], backend="cpp", num_threads=1)

thread = threading.Thread(target=work)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # ends a child that waits for ever
        _core.prefetch_into(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child hung"
stop.set()
thread.join()
print("done")
"""


@needs_cpp
def test_fork_while_a_thread_measures_prefetches(python):
    assert python(WHILE_A_THREAD_MEASURES) == "done"


FIRST_CALL_IN_THE_CHILD = """
import os, warnings
import numba
import numpy as np
import fastgae

warnings.simplefilter("ignore", DeprecationWarning)

@numba.njit(parallel=True)
def add_one(x):
    for i in numba.prange(len(x)):
        x[i] += 1

add_one(np.ones(1000))
child = os.fork()
if child == 0:
    ones = np.ones((1024, 4096), np.float32)
    fastgae.gae(ones, ones, ones > 0, last_values=ones[0], backend="numba", num_threads=2)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "GNU OpenMP kills a forked child that uses its threads"
print("done")
"""


@needs_numba
def test_the_first_call_of_numba_is_in_a_forked_child(python):
    assert python(FIRST_CALL_IN_THE_CHILD) == "done"


WHILE_A_THREAD_LOGS = """
import os, threading
import fastgae

fastgae.gae([1.0], [1.0, 1.0], [0], backend="numba")
import logging
from numba.core.compiler_lock import global_compiler_lock

compiling, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)

def compile_and_log():
    with global_compiler_lock:
        compiling.set()
        forking.wait()
        for _ in range(100_000):
            logging.Logger("new").isEnabledFor(logging.DEBUG)  # takes a lock, as Numba does while it compiles

thread = threading.Thread(target=compile_and_log)
thread.start()
compiling.wait()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
thread.join()
print("done")
"""


@needs_numba
def test_fork_while_a_thread_compiles_and_logs(python):
    """A fork takes the lock of logging, too: after the lock of the compiler, as the compiler does."""
    assert python(WHILE_A_THREAD_LOGS) == "done"
