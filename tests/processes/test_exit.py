"""The interpreter exits while daemon threads are in calls: with status 0, whatever they do."""

import pytest

from support.backends import BACKENDS

# The main thread leaves while the others are in calls of ten milliseconds and more.
EXIT = """
import sys, threading
import numpy as np, fastgae

backend, options = sys.argv[1], eval(sys.argv[2])
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(2048, 1024)), rng.normal(size=(2049, 1024))
terminated = rng.random((2048, 1024)) < 0.01
fastgae.gae(rewards, values, terminated, backend=backend, **options)  # numba compiles
busy = threading.Barrier(4)

def work():
    out = np.empty_like(rewards), np.empty_like(rewards)
    call = lambda: fastgae.gae(rewards, values, terminated, out=out, backend=backend, num_threads=1, **options)
    call()
    busy.wait()
    while True:
        call()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
busy.wait()
"""
OPTIONS = {"plain": {}, "options": {"returns_lambda": 0.9}, "normalize": {"normalize": "global"}}
ROUNDS = 4


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("backend", sorted({name.partition(":")[0] for name in BACKENDS}))
def test_exit_with_daemon_threads(python, backend, options):
    for _ in range(ROUNDS):
        done = python(EXIT, backend, repr(OPTIONS[options]), check=False)
        assert (done.returncode, done.stderr) == (0, "")
