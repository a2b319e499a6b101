"""Programs for fresh interpreters, where these look for modules, calls, failing calls, and imports that fail."""

import os
from pathlib import Path

import fastgae


def python_path(*first):
    """Return the PYTHONPATH of an interpreter that finds these folders first, and then this fastgae."""
    folders = [*first, Path(fastgae.__file__).parents[1], os.environ.get("PYTHONPATH")]
    return os.pathsep.join(map(str, filter(None, folders)))


# A plain call may take a backend's short cut at once, any other only after its conversion.
CALL = """
import json, sys, warnings
import numpy as np
import fastgae

def call(plain=True, **options):
    ones = np.ones((2, 2))
    if not plain:
        options["gamma"] = np.float32(0.9)
    rewards = ones if plain else ones.tolist()
    got = fastgae.gae(rewards, ones, ones.astype(bool), last_values=ones[0], **options)
    assert (got.returns == 1).all()

def failing(**options):
    try:
        call(**options)
    except Exception as error:
        return [type(error).__name__, str(error), type(error.__cause__).__name__, str(error.__cause__)]
"""

BLOCKED = """
import sys

class Blocked:
    \"\"\"Importing {name} fails with {error}.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise {error}

sys.meta_path.insert(0, Blocked())
"""
NO_NUMBA = BLOCKED.format(name="numba", error="ModuleNotFoundError('no numba', name='numba')")
NO_CORE = BLOCKED.format(name="fastgae._core", error="ModuleNotFoundError('no core', name='fastgae._core')")
NO_TRITON = BLOCKED.format(name="triton", error="ModuleNotFoundError('no triton', name='triton')")
BROKEN_CORE = BLOCKED.format(name="fastgae._core", error="ImportError('undefined symbol: nowhere')")
