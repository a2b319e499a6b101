"""The store of dropped memory, its setting, and without the compiled module; test_fork.py has it across fork."""

import json

import pytest

from support.backends import needs_cpp

SETTING = """
import json
import numpy as np, fastgae
from fastgae._support import memory

for _ in range(3):
    fastgae.reverse_scan(np.ones((300, 512), np.float32), 0.0, num_threads=1, backend="numpy")
print(json.dumps(memory.recycled()))
"""


@needs_cpp  # which alone recycles
@pytest.mark.parametrize(("setting", "hits"), [("0", 0), ("1MB", 2), ("100KB", 0), ("", 2)])
def test_the_variable(python, setting, hits):
    counts = json.loads(python(SETTING, FASTGAE_RECYCLE=setting))
    assert counts["hits"] == hits
    assert (counts["held"] > 0) == (hits > 0)


def test_without_the_compiled_module(python):
    block = "import sys; sys.modules['fastgae._core'] = None\n"
    assert python(block + SETTING) == "{}"
    assert "none, without the compiled module" in python(
        block
        + "import runpy; sys.argv[1:] = ['info']; runpy.run_module('fastgae', run_name='__main__', alter_sys=True)"
    )
