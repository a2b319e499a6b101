"""A fork while eight threads are in calls: the child computes the right bits, on its own threads, and exits."""

import os

import pytest

from support.backends import BACKENDS

FORK = """
import os, sys, threading, warnings
import numpy as np, fastgae

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of every fork beside threads
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(700, 512)), rng.normal(size=(701, 512))
terminated, mask = rng.random((700, 512)) < 0.1, rng.random((700, 512)) < 0.9
calls = [{}, {"mask": mask}, {"normalize": "global"}, {"tail_normalized": True}]

def compute(options, backend):
    return fastgae.gae(rewards, values, terminated, num_threads=2, backend=backend, **options)

expected = [compute(options, "numpy") for options in calls]
busy, stop = threading.Barrier(9), threading.Event()

def right(which):
    got = compute(calls[which], sys.argv[1])
    return all(np.array_equal(a, b) for a, b in zip(got, expected[which]))

def work(which):
    busy.wait()
    while not stop.is_set():
        assert right(which)

threads = [threading.Thread(target=work, args=[i % len(calls)]) for i in range(8)]
for thread in threads:
    thread.start()
busy.wait()
for _ in range(10):
    child = os.fork()
    if child == 0:
        wrong = 1
        try:
            wrong = int(not all(map(right, range(len(calls)))))
        finally:
            os._exit(wrong)
    assert os.waitpid(child, 0)[1] == 0, "the child hung, died or was wrong"
stop.set()
for thread in threads:
    thread.join()
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize("backend", BACKENDS)
def test_fork_beside_busy_threads(python, backend):
    assert python(FORK, backend) == "done"
