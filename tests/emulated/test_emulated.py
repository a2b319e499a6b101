"""The kernels on other machines: the native harness, cross-compiled and emulated.

Debian and Ubuntu package all tools: g++-aarch64-linux-gnu, g++-riscv64-linux-gnu, g++-s390x-linux-gnu and
qemu-user-static; g++-mingw-w64-x86-64-posix and wine; libsimde-dev. A machine whose tools are missing is skipped.
"""

import functools
import os
import sys

import pytest

from .instructions import per_step
from .machines import HERE, MACHINES, UNFUSED

HARNESS = HERE.parent / "native" / "harness.cpp"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU and Wine run programs on Linux only")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Return the kernels of a machine, compiled at the first use. If its tools are missing, skip, or fail in CI."""
    folder = tmp_path_factory.mktemp("emulated")

    @functools.cache
    def of(name):
        if missing := MACHINES[name].missing():
            stop = pytest.fail if os.environ.get("CI") else pytest.skip
            stop(f"there is no {' and no '.join(missing)} here")
        return MACHINES[name].kernels(folder / name)

    return of


@pytest.fixture
def harness(kernels, tmp_path):
    """Run 120 problems on a machine."""

    def run(name):
        machine = MACHINES[name]
        program = machine.program(HARNESS, kernels(name))
        return machine.run(program, "120", "3", WINEPREFIX=str(tmp_path / "wine"), WINEDEBUG="-all")

    return run


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if UNFUSED in machine.flags])
def test_harness(name, harness):
    done = harness(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "baseline: right"
    assert name != "avx512" or "avx512: right" in done.stdout


def test_this_can_fail(harness):
    """Prove that fused multiplications and additions, GCC's default on aarch64, give other bits."""
    done = harness("aarch64-fused")
    assert done.returncode == 1
    assert "wrong" in done.stdout


def test_neon_takes_fewer_instructions(kernels):
    """Prove that AArch64 gets vectors, and that no kernel is better off without them."""
    neon, portable = (per_step(MACHINES[name], kernels(name)) for name in ("aarch64", "aarch64-portable"))
    for call, count in neon.items():
        assert count < portable[call], call
