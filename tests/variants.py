"""Builds of the compiled module with other flags, and commands that run on them.

``python tests/variants.py address -- python -m fuzz`` compiles the module under the address sanitizer,
puts it into a copy of the package, and runs the command with that copy first on its path, in the folder ``tests``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
ALWAYS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
TINY = "-DFASTGAE_TINY"  # every threshold of csrc/tuning.hpp at its smallest
WITHOUT_AVX512 = "-DFASTGAE_WITHOUT_AVX512"
CPU = Path("/proc/cpuinfo")
# If this CPU has no AVX-512, the file would take half of the compiler's time and never run.
FOR_THIS_CPU = [] if not CPU.exists() or "avx512" in CPU.read_text() else [WITHOUT_AVX512]
# Functions that check an access are slower than checks in line, and take half of the time to compile.
CALLED = "--param=asan-instrumentation-with-call-threshold=0"

# name -> (flags, sanitizer libraries to load before Python, environment)
BUILDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    # pybind11 has functions with unused parameters.
    "tiny": (["-O1", TINY, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"], [], {}),
    "address": (
        # As the code is written: optimising it first takes minutes and hides what it removes. tests/native has AVX-512.
        ["-O0", "-g1", TINY, WITHOUT_AVX512, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", CALLED],
        ["libasan.so", "libstdc++.so"],
        # With wide red zones, all but small memory would begin at a cache line, which malloc does not promise.
        {"ASAN_OPTIONS": "detect_leaks=0:max_redzone=16", "PYTHONMALLOC": "malloc"},
    ),
    "thread": (
        ["-O1", "-g1", TINY, "-DFASTGAE_PORTABLE", "-fsanitize=thread"],
        ["libtsan.so", "libstdc++.so"],
        # NumPy's matrix products have threads that this compiler did not see.
        {"TSAN_OPTIONS": "halt_on_error=1", "OPENBLAS_NUM_THREADS": "1"},
    ),
}


def compiled(flags: list[str], folder: Path, sources: Path = ROOT, package: Path = ROOT / "fastgae") -> Path:
    """Compile the extension of ``sources`` with these flags into a copy of the package; return where that is."""
    import pybind11

    target = folder / "fastgae"
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    includes = [f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]
    objects = [folder.resolve() / f"{source.stem}.o" for source in sorted((sources / "csrc").glob("*.cpp"))]

    def run(*arguments: object) -> None:  # without the name of the folder, so that ccache knows a file elsewhere
        command = [COMPILER, *ALWAYS, *FOR_THIS_CPU, *flags, *map(str, arguments)]
        subprocess.run(command, cwd=sources / "csrc", check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(run, *includes, "-c", f"{made.stem}.cpp", "-o", made) for made in objects]
        for each in work:
            each.result()
    run("-shared", *objects, "-o", target.resolve() / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}")
    return folder


def environment(name: str, folder: Path) -> dict[str, str]:
    """Return the environment in which Python runs on a build."""
    _, libraries, more = BUILDS[name]
    found = [
        subprocess.run([COMPILER, f"-print-file-name={library}"], capture_output=True, text=True, check=True).stdout
        for library in libraries
    ]
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    loaded = {"LD_PRELOAD": " ".join(each.strip() for each in found)} if found else {}
    return {**os.environ, "PYTHONPATH": path, **loaded, **more}


def run_on(name: str, folder: Path, command: list[str], **how: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command on a build, in the folder of the tests."""
    # With random addresses, the shadow memory of this sanitizer may have no room. Docker may forbid setarch.
    fixed = ["setarch", "-R"] if name == "thread" and shutil.which("setarch") else []
    if fixed and subprocess.run([*fixed, "true"], stderr=subprocess.DEVNULL).returncode:
        print("addresses are random here: Docker fixes them with --security-opt seccomp=unconfined", file=sys.stderr)
        fixed = []
    return subprocess.run([*fixed, *command], cwd=ROOT / "tests", env=environment(name, folder), **how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", choices=[*BUILDS])
    parser.add_argument("command", nargs="+", help="what to run, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = compiled(BUILDS[args.build][0], Path(made))
        return run_on(args.build, folder, args.command).returncode


if __name__ == "__main__":
    sys.exit(main())
