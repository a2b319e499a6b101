"""Kernels compiled for a GPU that need not be there: what a call starts, and what the machine code looks like.

Triton believes that this process has a GPU. Calls then run as they do on one, with tensors on the CPU, but what would
start a kernel only notes it. Triton cannot compile in a process in which it interprets, so this needs one of its own.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
WARP, SHARED_MEMORY, THREADS = 32, 232_448, 1024
# An instruction of nvdisasm, with the first half of its code; the line after it has the second half.
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(\S+)(.*?);\s*/\* 0x[0-9a-f]{16} \*/")
SECOND_HALF = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/")
# Where fields of the second half begin: the cycles until the next instruction, the barrier that is free once the result
# has come, the one that is free once the operands are read, and the barriers to wait for.
STALL, RESULT, OPERANDS, WAIT = 41, 46, 49, 52
BARRIERS, NONE = 6, 7
LATENCIES = 280, 800  # cycles of a load from the L2 cache and from memory, more or less, of an H100
SHARED, OTHER = 30, 20  # cycles of a load from shared memory, and of what else a barrier is for
TURNS = 16


class Code(NamedTuple):
    """The machine code of a kernel."""

    kernel: str
    registers: int
    stack: int  # bytes, where registers are spilled
    instructions: int
    stall_cycles: int  # of the loop with the most additions, if nothing has to wait for memory
    cycles_280: int  # of a turn of that loop in one warp, if each load takes 280 cycles, as from the L2 cache
    cycles_800: int  # as from memory


class Instruction(NamedTuple):
    """An instruction of nvdisasm, and the second half of its code."""

    name: str
    operands: str
    label: str  # before it
    code: int


def compile_for(architecture: int) -> list[Any]:
    """Make this process compile for an architecture. Return the list that gets the binary of every launch."""
    started: list[Any] = []
    target = GPUTarget("cuda", architecture, WARP)

    class Launcher:
        """Stands for Triton's own."""

        def __init__(self, src: Any, metadata: Any):
            self.metadata = metadata

        def __call__(self, *given: Any) -> None:
            started.append(BINARIES[self.metadata.hash])

    BINARIES: dict[str, Any] = {}  # noqa: N806
    warmup = triton.JITFunction.warmup

    def noted(*given: Any, **named: Any) -> Any:
        binary = warmup(*given, **named)
        BINARIES[binary.metadata.hash] = binary
        return binary

    triton.JITFunction.warmup = noted
    utils = SimpleNamespace(
        load_binary=lambda *given: (1, 1, 0, 0, THREADS),
        unload_module=lambda module: None,
        get_device_properties=lambda device: {"max_shared_mem": SHARED_MEMORY},
    )
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            launcher_cls=Launcher,
            utils=utils,
        )
    )
    load_the_backend()
    return started


def load_the_backend() -> None:
    """Load the backend although torch finds no GPU, and let it take tensors on the CPU."""
    from fastgae._engine import dispatch

    torch.cuda.is_available = lambda: True
    torch.cuda.is_current_stream_capturing = lambda: False
    dispatch._import.cache_clear()
    from fastgae._backends import triton as backend
    from fastgae._backends.triton import recursion

    backend.takes = lambda array: True  # type: ignore[assignment]
    recursion._multiprocessors = lambda device: 132  # type: ignore[assignment]


def code_of(binary: Any) -> Code:
    with TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(binary.asm["cubin"])
        usage = _output("cuobjdump", "-res-usage", file)
        text = _output("nvdisasm", "-hex", "-c", file)
    registers, stack = (int(re.search(rf"{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))  # type: ignore[index]
    instructions = list(_instructions(text))
    loops = [instructions[first : last + 1] for first, last in _loops(instructions)]
    most = max(loops, key=lambda loop: (sum(each.name in ("FADD", "DADD") for each in loop), -len(loop)), default=[])
    stall = sum(each.code >> STALL & 15 for each in most)
    waiting = [cycles(most, latency) for latency in LATENCIES]
    return Code(binary.metadata.name, registers, stack, len(instructions), stall, *waiting)


def cycles(loop: Sequence[Instruction], latency: int) -> int:
    """Return the cycles of a turn of a loop that one warp runs, where a load takes ``latency`` cycles."""
    free, now, ends = [0] * (NONE + 1), 0, []
    for _ in range(TURNS):
        for name, *_, code in loop:
            now = max(now, *(free[each] for each in range(BARRIERS) if code >> WAIT >> each & 1), 0)
            needed = latency if name in ("LD", "LDG") else SHARED if name in ("LDS", "STS", "SHFL") else OTHER
            for field, until in ((RESULT, now + needed), (OPERANDS, now + OTHER)):
                barrier = code >> field & 7
                free[barrier] = max(free[barrier], until) if barrier != NONE else 0
            now += max(code >> STALL & 15, 1)
        ends.append(now)
    half = TURNS // 2  # the first turns do not wait for what came before
    return (ends[-1] - ends[half - 1]) // half


def _output(tool: str, *arguments: object) -> str:
    return subprocess.run([TOOLS / tool, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def _instructions(text: str) -> Iterator[Instruction]:
    label, found = "", None
    for line in text.splitlines():
        if line.startswith(".L"):
            label = line.rstrip().rstrip(":")
        elif found is not None and (code := SECOND_HALF.match(line)):
            yield Instruction(found[1].split(".")[0], found[2], label, int(code[1], 16))
            label, found = "", None
        else:
            found = INSTRUCTION.match(line)


def _loops(instructions: list[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last instruction of every innermost loop: a jump back."""
    labels = {each.label: place for place, each in enumerate(instructions) if each.label}
    jumps = [
        (labels[operand[1]], place)
        for place, each in enumerate(instructions)
        if each.name == "BRA"
        and (operand := re.search(r"`\((\.L\w+)\)", each.operands))
        and labels.get(operand[1], place) < place
    ]
    for first, last in jumps:
        if not any(first <= inner[0] and inner[1] <= last for inner in jumps if inner != (first, last)):
            yield first, last


def calls_of(call: Callable[[], Any]) -> list[str]:
    """Return the Python functions that a call calls, once it has been made before."""
    call()
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return called[1:]  # without the call itself
