"""Make every allocation and every thread of some calls fail.

``python -m faults.faults``, in the folder ``tests``, counts the failures.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fastgae

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++")), None)


def compiled(folder):
    """Compile the library of faults; its path."""
    library = Path(folder, "libfaults.so")
    source = HERE / "faults.cpp"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, source, "-o", library, "-ldl"], check=True)
    return library


def run(library, *arguments):
    """Run a command of every_fault.py in a process of its own; the numbers that it prints of each call."""
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "every_fault.py"), str(library), *arguments],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(Path(fastgae.__file__).parents[1])},
        cwd=library.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return {name: list(map(int, counts)) for name, *counts in map(str.split, done.stdout.splitlines())}


def met(library, num_threads):
    """Run all calls with every fault that they can meet; how many of both kinds each call met."""
    return {name: (sum(counts[:2]), sum(counts[2:])) for name, counts in run(library, str(num_threads)).items()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(folder)
        calls = [counts for num_threads in (1, 4) for counts in met(library, num_threads).values()]
    allocations, threads = map(sum, zip(*calls, strict=True))
    print(f"{len(calls)} calls met {allocations} failing allocations and {threads} failing threads")


if __name__ == "__main__":
    main()
