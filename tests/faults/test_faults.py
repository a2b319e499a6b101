"""Every allocation and every thread of a call fails once: MemoryError or the same bits, out never half written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastgae
from conftest import BACKENDS
from every_fault import CALLS

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++")), None)

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the faults are made with the preloading of glibc"),
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here"),
    pytest.mark.skipif(not any(name.startswith("cpp") for name in BACKENDS), reason="there is no compiled backend"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "libfaults.so"
    source = str(HERE / "faults.cpp")
    command = [COMPILER, "-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", source, "-o", str(path), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_every_fault(library, name, num_threads, tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "every_fault.py"), str(library), name, str(num_threads)],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(Path(fastgae.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    allocations, *_, threads = map(int, done.stdout.split())
    assert allocations > 0
    assert (threads > 0) == (num_threads > 1)
