"""Machines, of which this one can emulate most: their compilers, and the programs that run on them."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KERNELS = sorted((HERE.parents[1] / "csrc").glob("target*.cpp"))
EVERY_BUILD = ["-std=c++17", "-fno-math-errno", "-pthread"]
UNFUSED = "-ffp-contract=off"


@dataclass(frozen=True)
class Machine:
    compiler: str
    emulator: str
    flags: tuple[str, ...]
    header: str = ""
    linked: tuple[str, ...] = ("-static",)
    options: tuple[str, ...] = ()  # of the emulator

    def missing(self) -> list[str]:
        missing = [tool for tool in (self.compiler, self.emulator) if not shutil.which(tool)]
        return missing if Path("/usr/include", self.header).exists() else [*missing, self.header]

    def compile(self, folder: Path, *more: str | Path) -> None:
        """Run the compiler in a folder. What it prints is the message of its error."""
        command = [self.compiler, *EVERY_BUILD, *self.flags, *map(str, more)]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout)

    def kernels(self, folder: Path) -> Path:
        """Compile the kernels into a new folder, once for all programs. One compiler runs per CPU, or ccache."""
        folder.mkdir()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda source: self.compile(folder, "-c", source), KERNELS))
        return folder

    def program(self, source: Path, folder: Path, *flags: str) -> Path:
        """Compile a program into a folder, and link it with the kernels there. ccache keeps only what is not linked."""
        program = folder / f"{source.stem}.exe"
        kernels = [each for each in sorted(folder.glob("*.o")) if each.stem.startswith("target")]
        self.compile(folder, *flags, "-c", source, "-o", f"{source.stem}.o")
        self.compile(folder, f"{source.stem}.o", *kernels, *self.linked, "-o", program)
        return program

    def run(self, program: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        command = [self.emulator, *self.options, str(program), *arguments]
        return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300)


# -O1 compiles in half the time of -O2, but does not fuse multiplications and additions. aarch64 is built with -O2,
# because GCC fuses there unless a flag forbids it, and the test must show that the flag works.
AARCH64 = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
# SIMDe computes the instructions of AVX-512 in plain C++, so the kernels that use them are tested on any CPU.
SIMULATED = ("-DFASTGAE_TARGET(isa)=", "-DFASTGAE_TARGET_END=", "-D__builtin_cpu_supports(feature)=true")
MACHINES = {
    "aarch64": Machine(*AARCH64, ("-O2", UNFUSED)),
    "aarch64-tiny": Machine(*AARCH64, ("-O1", UNFUSED, "-DFASTGAE_TINY")),
    # One number at a time, as on CPUs without a vector file of their own.
    "aarch64-portable": Machine(*AARCH64, ("-O2", UNFUSED, "-DFASTGAE_PORTABLE")),
    "aarch64-fused": Machine(*AARCH64, ("-O2",)),
    "riscv64": Machine("riscv64-linux-gnu-g++", "qemu-riscv64-static", ("-O1", UNFUSED)),
    "s390x-big-endian": Machine("s390x-linux-gnu-g++", "qemu-s390x-static", ("-O1", UNFUSED)),
    "avx512": Machine(
        "x86_64-linux-gnu-g++",
        "env",
        ("-O1", UNFUSED, f"-I{HERE / 'simde'}", "-Wno-psabi", *SIMULATED),
        "simde/x86/avx512.h",
    ),
    # Wine runs programs on this CPU, so AVX2 code is tested with the calling convention and the stack of Windows.
    "windows": Machine("x86_64-w64-mingw32-g++-posix", "wine", ("-O1", UNFUSED, "-DFASTGAE_WITHOUT_AVX512")),
}
