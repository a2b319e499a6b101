"""`python -m emulated.instructions`, in the folder `tests`, counts instructions per step on AArch64.

It runs one call of every kind, with NEON and one number at a time. QEMU writes a line for every instruction of the
program, so the counts are exact. They depend on the compiler, and say nothing of how long an instruction takes.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from .machines import HERE, MACHINES, Machine

COUNTED = HERE / "counted.cpp"
# QEMU 8.1 renamed the first setting to the second.
TRACED = {"QEMU_SINGLESTEP": "1", "QEMU_ONE_INSN_PER_TB": "1", "QEMU_LOG": "nochain,exec"}


def between_marks(trace: Iterable[bytes]) -> Iterator[int]:
    """Yield how many instructions each call takes. Every line of the trace ends with the name of a function."""
    counted = 0
    for line in trace:
        function = line.rsplit(maxsplit=1)[-1]
        if function == b"count_begins":
            counted = 0
        elif function != b"count_ends":
            counted += 1
        elif counted:
            yield counted
            counted = 0


def per_step(machine: Machine, kernels: Path) -> dict[str, float]:
    """Return the instructions per step of every call in counted.cpp."""
    command = [machine.emulator, str(machine.program(COUNTED, kernels))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, **TRACED}, **pipes) as process:
        counts = list(between_marks(process.stderr))
        rows = [line.split("\t") for line in process.stdout.read().decode().splitlines()]
    assert process.returncode == 0
    return {name: count / int(steps) for (name, steps), count in zip(rows, counts, strict=True)}


def table(portable: dict[str, float], neon: dict[str, float]) -> str:
    def cell(call: str, dtype: str) -> str:
        before, now = (counts[f"{call}, {dtype}"] for counts in (portable, neon))
        return f"{before:.1f} / {now:.1f} = {before / now:.1f}"

    calls = dict.fromkeys(name.rpartition(", ")[0] for name in neon)
    lines = ["| one number at a time / NEON | float32 | float64 |", "|---|---:|---:|"]
    return "\n".join([*lines, *(f"| {call} | {cell(call, 'float32')} | {cell(call, 'float64')} |" for call in calls)])


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        compiled = {name: MACHINES[name].kernels(Path(made, name)) for name in ("aarch64-portable", "aarch64")}
        print(table(*(per_step(MACHINES[name], kernels) for name, kernels in compiled.items())))


if __name__ == "__main__":
    main()
