"""The store of dropped memory across fork and at exit, and without the compiled module."""

import json
import os

import pytest

from support.backends import BACKENDS, ONE_TARGET

COMPILED = pytest.mark.skipif("cpp:baseline" not in BACKENDS, reason="only the compiled module recycles")
START = """
import gc, json, os, sys, threading, warnings
import numpy as np, fastgae
from fastgae._support import memory

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of every fork beside threads

def call(number, steps=300):
    return fastgae.reverse_scan(np.full((steps, 512), number, np.float32), 0.0, num_threads=1, backend=sys.argv[1])

"""

FORK = (
    START
    + """
kept, dropped = call(1), call(2)
expected = kept.copy()
del dropped
assert memory.recycled()["held"] > 0
child = os.fork()
if child == 0:
    wrong = 1
    try:
        counts = memory.recycled()
        assert (counts["held"], counts["hits"], counts["misses"]) == (0, 0, 0), counts
        assert counts["limit"] > 0
        results = [call(number) for number in range(3, 7)]
        assert np.array_equal(kept, expected)
        assert all((array == number).all() for number, array in zip(range(3, 7), results))
        del results, kept
        assert memory.recycled()["held"] > 0
        call(8)
        assert memory.recycled()["hits"] > 0
        wrong = 0
    finally:
        os._exit(wrong)
assert os.waitpid(child, 0)[1] == 0
assert memory.recycled()["held"] > 0, "the parent keeps what it has"
assert np.array_equal(kept, expected)
print("done")
"""
)

# Each thread checks what it holds while the others drop theirs and the main thread forks.
BUSY_FORKS = (
    START
    + """
busy, stop, wrong = threading.Barrier(7), threading.Event(), []

def work(seed):
    busy.wait()
    number, before = seed, call(seed)
    while not stop.is_set():
        number = (number + 6) % 6000
        results = call(number, 100 + number % 3)
        if not ((before == before[0, 0]).all() and (results == number).all()):
            wrong.append(number)
        before = results

threads = [threading.Thread(target=work, args=[seed]) for seed in range(6)]
for thread in threads:
    thread.start()
busy.wait()
for _ in range(20):
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            for number in range(5):
                assert (call(number) == number).all()
            failed = int(memory.recycled()["hits"] == 0)
        finally:
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0, "the child hung, died or was wrong"
stop.set()
for thread in threads:
    thread.join()
assert not wrong
print("done")
"""
)

# Arrays die in every way there is at exit: with a module, in a cycle, with an exit function, and in daemon threads.
EXIT = (
    START
    + """
import atexit

kept = [call(number) for number in range(3)]
cycle = [kept, call(4)]
cycle.append(cycle)
sys.keeps, fastgae.keeps, np.keeps = call(5), call(6), call(7)
atexit.register(lambda: call(8).sum())
busy = threading.Barrier(4)

def work():
    call(0)
    busy.wait()
    while True:
        call(1)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
busy.wait()
"""
)

SETTING = START + "call(1); call(2); call(3); print(json.dumps(memory.recycled()))"


@COMPILED
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize("backend", ONE_TARGET)
@pytest.mark.parametrize("code", [FORK, BUSY_FORKS], ids=["one thread", "busy threads"])
def test_fork(python, backend, code):
    assert python(code, backend) == "done"


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_exit(python, backend):
    for _ in range(4):
        done = python(EXIT, backend, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@COMPILED
@pytest.mark.parametrize(("setting", "hits"), [("0", 0), ("1MB", 2), ("100KB", 0), ("", 2)])
def test_the_variable(python, setting, hits):
    counts = json.loads(python(SETTING, "numpy", FASTGAE_RECYCLE=setting))
    assert counts["hits"] == hits
    assert (counts["held"] > 0) == (hits > 0)


def test_without_the_compiled_module(python):
    block = "import sys; sys.modules['fastgae._core'] = None\n"
    assert python(block + SETTING, "numpy") == "{}"
    assert "none, without the compiled module" in python(
        block
        + "import runpy; sys.argv[1:] = ['info']; runpy.run_module('fastgae', run_name='__main__', alter_sys=True)"
    )
