"""Calls on the smallest stacks there are: of the main thread, of threads of Python, and of the threads of kernels."""

import sys

import pytest

from support.backends import CPP

CALLS = """
import sys, threading
import numpy as np, fastgae

backend = sys.argv[1]
rng = np.random.default_rng(0)
wrong = []

def check(steps, envs, dtype, time_axis, options):
    shape = (steps, envs) if time_axis == 0 else (envs, steps)
    rewards, values = rng.normal(size=(2, *shape)).astype(dtype)
    terminated, last_values = rng.random(shape) < 0.1, rng.normal(size=envs).astype(dtype)
    arguments = dict(last_values=last_values, time_axis=time_axis, **options)
    got = fastgae.gae(rewards, values, terminated, backend=backend, num_threads=3, **arguments)
    expected = fastgae.gae(rewards, values, terminated, backend="numpy", **arguments)
    if not all(np.array_equal(a, b) for a, b in zip(got, expected)):
        wrong.append((steps, envs, dtype, time_axis, options))

def check_all():
    for dtype in (np.float32, np.float64):
        for time_axis in (0, 1):
            for options in ({}, {"returns_lambda": 0.9}, {"normalize": "per_env"}):
                for steps, envs in ((1, 1), (40, 3), (130, 70), (1500, 400)):
                    check(steps, envs, dtype, time_axis, options)
"""
CHECK = f"""{CALLS}
check_all()
if sys.argv[2:]:
    threading.stack_size(32 * 1024)
    threads = [threading.Thread(target=check_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert not wrong, wrong
print("done")
"""
# The limit is one for new programs, and is that of the threads that they start.
LIMITED = """
import resource, subprocess, sys

_, hard = resource.getrlimit(resource.RLIMIT_STACK)
limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (96 * 1024, hard))
sys.exit(subprocess.run([sys.executable, "-P", "-c", *sys.argv[1:]], preexec_fn=limit).returncode)
"""

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other least stacks"),
    pytest.mark.parametrize("backend", CPP),
]


def test_main_thread(python, backend):
    assert python(LIMITED, CHECK, backend) == "done"


def test_threads_of_python(python, backend):
    assert python(CHECK, backend, "in threads") == "done"
