"""The store of dropped memory across fork, and without the compiled module; test_fork.py has more."""

import json
import os

import pytest

from support.backends import BACKENDS, ONE_TARGET

COMPILED = pytest.mark.skipif("cpp:baseline" not in BACKENDS, reason="only the compiled module recycles")
START = """
import json, os, sys, warnings
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

SETTING = START + "call(1); call(2); call(3); print(json.dumps(memory.recycled()))"


@COMPILED
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize("backend", ONE_TARGET)
def test_fork(python, backend):
    assert python(FORK, backend) == "done"


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
