"""The kernels on other machines: the native harness, cross-compiled and emulated.

Debian and Ubuntu package all tools: g++-aarch64-linux-gnu, g++-riscv64-linux-gnu, g++-s390x-linux-gnu and
qemu-user-static; g++-mingw-w64-x86-64-posix and wine. A machine whose tools are missing is skipped.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCES = [TESTS / "native" / "harness.cpp", *sorted((TESTS.parent / "csrc").glob("target*.cpp"))]
EVERY_BUILD = ["-std=c++17", "-fno-math-errno", "-pthread", "-static"]
UNFUSED = "-ffp-contract=off"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU and Wine run programs on Linux only")


@dataclass(frozen=True)
class Machine:
    compiler: str
    emulator: str
    flags: tuple[str, ...]


# -O1 compiles in half the time of -O2, but does not fuse multiplications and additions. aarch64 is built with -O2,
# because GCC fuses there unless a flag forbids it, and the test must show that the flag works.
MACHINES = {
    "aarch64": Machine("aarch64-linux-gnu-g++", "qemu-aarch64-static", ("-O2", UNFUSED)),
    "aarch64-fused": Machine("aarch64-linux-gnu-g++", "qemu-aarch64-static", ("-O2",)),
    "riscv64": Machine("riscv64-linux-gnu-g++", "qemu-riscv64-static", ("-O1", UNFUSED)),
    "s390x-big-endian": Machine("s390x-linux-gnu-g++", "qemu-s390x-static", ("-O1", UNFUSED)),
    # Wine runs programs on this CPU, so AVX2 code is tested with the calling convention and the stack of Windows.
    "windows": Machine("x86_64-w64-mingw32-g++-posix", "wine", ("-O1", UNFUSED, "-DFASTGAE_WITHOUT_AVX512")),
}


def missing(machine):
    return [tool for tool in (machine.compiler, machine.emulator) if not shutil.which(tool)]


@pytest.fixture(scope="module")
def compiling(tmp_path_factory):
    """Yield the program of each machine, and the future of its compiler. One compiler runs per CPU."""
    folder = tmp_path_factory.mktemp("emulated")

    def compiled(name):
        machine = MACHINES[name]
        command = [
            machine.compiler,
            *EVERY_BUILD,
            *machine.flags,
            *map(str, SOURCES),
            "-o",
            str(folder / f"{name}.exe"),
        ]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = [name for name in MACHINES if not missing(MACHINES[name])]
        yield {name: (folder / f"{name}.exe", pool.submit(compiled, name)) for name in found}


@pytest.fixture
def harness(compiling, tmp_path):
    """Run 120 problems on a machine."""

    def run(name):
        lacking = missing(MACHINES[name])
        if lacking:
            pytest.skip(f"there is no {' and no '.join(lacking)} here")
        program, compiler = compiling[name]
        assert compiler.result().returncode == 0, compiler.result().stdout
        wine = {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
        command = [MACHINES[name].emulator, str(program), "120", "3"]
        return subprocess.run(command, env={**os.environ, **wine}, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if UNFUSED in machine.flags])
def test_harness(name, harness):
    done = harness(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "baseline: right"


def test_this_can_fail(harness):
    """Prove that fused multiplications and additions, GCC's default on aarch64, give other bits."""
    done = harness("aarch64-fused")
    assert done.returncode == 1
    assert "wrong" in done.stdout
