"""The kernels without Python: a harness built under sanitizers runs every target of this CPU."""

import shutil
from pathlib import Path

import pytest

from emulated.machines import UNFUSED, Machine
from variants import CALLED, COMPILER, FOR_THIS_CPU

HERE = Path(__file__).parent
# Not optimized, because the compiler would take longer and might remove the very accesses that a sanitizer looks for.
EVERY_BUILD = ("-O0", "-g1", UNFUSED, "-Wall", "-Wextra", "-Werror", *FOR_THIS_CPU)
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover", CALLED)
# FASTGAE_PORTABLE builds the kernels as for a CPU without a vector file of its own.
THREAD = ("-fsanitize=thread", "-DFASTGAE_PORTABLE")
# Where addresses are laid out at random, the shadow memory of a sanitizer may have no room.
FIXED = ("setarch", "-R") if shutil.which("setarch") else ("env",)
# Name -> (machine, small problems for each target)
BUILDS = {
    name: (Machine(str(COMPILER), FIXED[0], (*EVERY_BUILD, *flags), linked=(), options=FIXED[1:]), problems)
    for name, flags, problems in (("address-undefined", ADDRESS, "120"), ("thread", THREAD, "20"))
}

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here"),
    pytest.mark.parametrize("build", BUILDS),
]


def assert_right(done, last):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(last)
    assert done.stderr == ""


def test_harness(tmp_path, build):
    machine, problems = BUILDS[build]
    program = machine.program(HERE / "harness.cpp", machine.kernels(tmp_path / build))
    assert_right(machine.run(program, problems, "3"), "baseline: right")


def test_recycled_memory(tmp_path, build):
    machine, _ = BUILDS[build]
    program = tmp_path / "recycled"
    machine.compile(tmp_path, "-DFASTGAE_TINY", HERE / "recycled.cpp", "-o", program)
    assert_right(machine.run(program, "2000"), "right")
