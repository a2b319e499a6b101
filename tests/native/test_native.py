"""The kernels without Python: a harness built under sanitizers runs every target of this CPU."""

import shutil
from dataclasses import replace
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
# Name -> (machine, small problems for each target)
BUILDS = {
    name: (Machine(str(COMPILER), "env", (*EVERY_BUILD, *flags), linked=()), problems)
    for name, flags, problems in (("address-undefined", ADDRESS, "120"), ("thread", THREAD, "20"))
}

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here"),
    pytest.mark.parametrize("build", BUILDS),
]


def printed(machine, program, *arguments):
    """Run a program. If random addresses leave a sanitizer no room for its shadow memory, run it with fixed ones."""
    done = machine.run(program, *arguments)
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):
        done = replace(machine, emulator="setarch", options=("-R",)).run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_harness(tmp_path, build):
    machine, problems = BUILDS[build]
    program = machine.program(HERE / "harness.cpp", machine.kernels(tmp_path / build))
    assert printed(machine, program, problems, "3").splitlines()[-1] == "baseline: right"


@pytest.mark.parametrize(("name", "rounds"), [("recycled", "2000"), ("trees", "60"), ("prefetching", "200")])
def test_parts(tmp_path, build, name, rounds):
    machine, _ = BUILDS[build]
    program = machine.program(HERE / f"{name}.cpp", tmp_path, "-DFASTGAE_TINY")
    assert printed(machine, program, rounds).endswith("right\n")
