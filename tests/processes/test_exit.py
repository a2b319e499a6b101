"""The interpreter exits while daemon threads are in calls: with status 0, whatever they do.

Arrays die in every way there is: with a module, in a cycle, with an exit function, and in the threads.
"""

import pytest

from support.backends import ONE_TARGET

# The main thread leaves while the others are in calls of ten milliseconds and more.
EXIT = """
import atexit, sys, threading
import numpy as np, fastgae

backend, calls = sys.argv[1], ({}, {"returns_lambda": 0.9}, {"normalize": "global"})
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(2048, 1024)), rng.normal(size=(2049, 1024))
terminated = rng.random((2048, 1024)) < 0.01
for options in calls:
    fastgae.gae(rewards, values, terminated, backend=backend, **options)  # numba compiles
busy = threading.Barrier(4)

def work(options):
    out = np.empty_like(rewards), np.empty_like(rewards)
    call = lambda: fastgae.gae(rewards, values, terminated, out=out, backend=backend, num_threads=1, **options)
    call()
    busy.wait()
    while True:
        call()
        fastgae.reverse_scan(rewards, 0.0, num_threads=1, backend=backend)

kept = [fastgae.reverse_scan(rewards, 0.0, backend=backend) for _ in range(3)]
cycle = [kept]
cycle.append(cycle)
sys.keeps, fastgae.keeps, np.keeps = kept.pop(), kept.pop(), fastgae.reverse_scan(rewards, 0.0, backend=backend)
atexit.register(lambda: fastgae.reverse_scan(rewards, 0.0, backend=backend).sum())
for options in calls:
    threading.Thread(target=work, args=[options], daemon=True).start()
busy.wait()
"""
ROUNDS = 5


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_exit_with_daemon_threads(python, backend):
    for _ in range(ROUNDS):
        done = python(EXIT, backend, check=False)
        assert (done.returncode, done.stderr) == (0, "")
