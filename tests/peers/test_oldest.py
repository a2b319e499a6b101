"""The oldest version that each hook knows, with the hook and without, from the folder that `peers.oldest` filled."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastgae

from .oldest import OLDEST

FOLDER = os.environ.get("FASTGAE_TEST_OLDEST")


@pytest.mark.skipif(FOLDER is None, reason="FASTGAE_TEST_OLDEST names no folder that `python -m peers.oldest` filled")
@pytest.mark.parametrize("library", OLDEST)
def test_hook(library):
    folder, known = Path(FOLDER, library), OLDEST[library]
    (found,) = importlib.metadata.distributions(name=known.package, path=[str(folder)])
    assert found.version == known.oldest
    package = Path(fastgae.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", library, "test_hooked.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, package)))},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout, run.stdout  # and not skipped
