"""The first calls of a process come from several threads at once: none may wait for another that waits for it."""

import pytest

from support.backends import BACKENDS

FIRST_CALLS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np, fastgae

rewards, values, terminated = np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool)
together = threading.Barrier(8)

def work(_):
    together.wait()
    fastgae.gae(rewards, values, terminated, backend=sys.argv[1])

with ThreadPoolExecutor(8) as pool:
    list(pool.map(work, range(8)))
print("done")
"""


@pytest.mark.parametrize("backend", sorted({name.partition(":")[0] for name in BACKENDS}))
def test_first_calls_at_once(python, backend):
    for _ in range(5):
        assert python(FIRST_CALLS, backend) == "done"
