"""The kernels without Python: a harness built under sanitizers runs every target of this CPU."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HARNESS = HERE / "harness.cpp"
SOURCES = [HARNESS, *sorted((HERE.parents[1] / "csrc").glob("target*.cpp"))]
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
# Not optimized, because the compiler would take longer and might remove the very accesses that a sanitizer looks for.
EVERY_BUILD = ["-std=c++17", "-O0", "-g", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
EVERY_BUILD += ["-Wall", "-Wextra", "-Werror"]
CPU = Path("/proc/cpuinfo")
if not CPU.exists() or "avx512" not in CPU.read_text():
    EVERY_BUILD.append("-DFASTGAE_WITHOUT_AVX512")  # compiling it takes the longest, and it cannot run here
# Name -> (flags, small problems for each target, threads at most). FASTGAE_PORTABLE builds the kernels as for a CPU
# without a vector file of its own.
BUILDS = {
    "address-undefined": (["-fsanitize=address,undefined", "-fno-sanitize-recover"], 120, 3),
    "thread": (["-fsanitize=thread", "-DFASTGAE_PORTABLE"], 20, 3),
}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


@pytest.fixture(scope="module")
def compiling(tmp_path_factory):
    """Yield the program of each build, and the future of its compiler. All builds compile side by side."""
    folder = tmp_path_factory.mktemp("native")

    def compiled(name):
        command = [COMPILER, *EVERY_BUILD, *BUILDS[name][0], *map(str, SOURCES), "-o", str(folder / name)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    with ThreadPoolExecutor() as pool:
        yield {name: (folder / name, pool.submit(compiled, name)) for name in BUILDS}


def run(command):
    """Run a command. If random addresses leave a sanitizer no room for its shadow memory, run it with fixed ones."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):
        done = subprocess.run(["setarch", "-R", *command], capture_output=True, text=True, timeout=300)
    return done


@pytest.mark.parametrize("build", BUILDS)
def test_harness(compiling, build):
    program, compiler = compiling[build]
    assert compiler.result().returncode == 0, compiler.result().stdout
    done = run([program, *map(str, BUILDS[build][1:])])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "baseline: right"
    assert done.stderr == ""


@pytest.mark.parametrize("build", BUILDS)
def test_recycled_memory(tmp_path, build):
    program = tmp_path / "recycled"
    flags = [*EVERY_BUILD, *BUILDS[build][0], "-DFASTGAE_TINY"]
    subprocess.run([COMPILER, *flags, str(HERE / "recycled.cpp"), "-o", str(program)], check=True)
    done = run([program, "2000"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("right\n")
    assert done.stderr == ""
