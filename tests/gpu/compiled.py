"""The instructions that would change bits, in kernels that are compiled for GPUs that need not be there.

Triton cannot compile in a process in which it interprets, so each ``report`` runs in one of its own.
"""

import json
import re
import subprocess
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas, sm_arch_from_capability

import fastgae
from fastgae._interop.libraries import FUNCTIONS
from speed.gpu.compiled import TOOLS, compile_for
from support.cases import env_major, make_case
from support.drawn import drawn

from .device import dense, narrowed, tensor, tensors

# A multiplication and an addition that are rounded once, or that ptxas may make one, or denormals that become 0.
IN_PTX = re.compile(r"\b(?:fma|mad)\.\S*f(?:16|32|64)\S*|\b(?:add|sub|mul)\.(?!rn)\S*f(?:16|32|64)\S*|\S+\.ftz\S*")
# Two instructions touch no number of ours: ptxas writes constants by HFMA2 with RZ, and divides integers with F2I.FTZ.
IN_SASS = re.compile(r"\b[FD]FMA\S*.*|\bHFMA2\b(?!.*RZ, *RZ).*|\b(?!F2I\.)\w+\.FTZ\S*.*")
FEWER = 2  # steps of a turn, which are all alike, and fewer of them compile faster


def found_in(binary):
    """Return the instructions in the PTX of a compiled kernel that would change bits."""
    return IN_PTX.findall(binary.asm["ptx"])


def found_in_machine_code(binary, architecture):
    """Return the instructions of a compiled kernel that would change bits.

    A correctly rounded division or root is made of fused multiply-adds. The machine code of a kernel that has one is
    therefore read with another operation in its place.
    """
    ptx = binary.asm["ptx"]
    with TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(binary.asm["cubin"])
        without = ptx.replace("div.rn.", "add.rn.").replace("sqrt.rn.", "neg.")
        if without != ptx:
            Path(folder, "kernel.ptx").write_text(without)
            gpu = sm_arch_from_capability(architecture)
            assembler = [get_ptxas(architecture).path, "--fmad=false", f"--gpu-name={gpu}"]
            subprocess.run([*assembler, f"{folder}/kernel.ptx", "-o", cubin], check=True)
        code = TOOLS / "nvdisasm", "-c", "--no-dataflow", cubin
        sass = subprocess.run(code, check=True, capture_output=True, text=True).stdout
    assert "EXIT" in sass
    return IN_SASS.findall(sass)


def variants(dtype):
    """Yield (name, function, arguments) of calls that launch every variant of the kernels."""
    for name in FUNCTIONS:
        for number, (function, arguments) in enumerate(drawn(name, dtype)):
            yield f"{name} {number}", function, tensors(dense(arguments))
    ones = tensor(np.ones((1, 1), dtype))
    one_step = {"rewards": ones, "values": ones, "terminated": ones > 1, "last_values": ones[0], "n": 1}
    yield "one step of one env", fastgae.n_step_returns, one_step


def usual():
    """Yield the calls of most rollouts."""
    for dtype in (np.float32, np.float64):
        arguments = make_case((64, 48), np.dtype(dtype)).arguments()
        yield f"rows {dtype.__name__}", fastgae.gae, tensors(arguments)
        yield f"tiles {dtype.__name__}", fastgae.gae, tensors(env_major(arguments))
    for narrow in (torch.bfloat16, torch.float16):
        yield str(narrow), fastgae.gae, narrowed(tensors(arguments), narrow)


def report(architecture, every):
    """Print what is found in kernels with a mistake, and {name: what is found} of ours.

    ``every``: of how many variants one is looked at; 0: only usual kernels, and fewer of them.
    """
    started, findings, seen = compile_for(architecture), {}, set()
    mistakes = found_in_mistakes(architecture)
    from fastgae._backends import triton as backend
    from fastgae._backends.triton import moments, recursion
    from fastgae._interop import torch_devices

    def look(name, function, arguments, machine_code=True):
        del started[:]
        torch_devices._plans.clear()
        torch_devices.call(function, arguments)
        for number, binary in enumerate(started):
            if binary.hash not in seen:
                seen.add(binary.hash)
                found = found_in(binary) + (found_in_machine_code(binary, architecture) if machine_code else [])
                findings[f"{name}: {binary.metadata.name} {number}"] = found

    calls = list(usual())
    if every:
        look(*calls[0])  # with as many steps as it is used
    recursion.STEPS = recursion.FEWER_STEPS = recursion.FEWEST_STEPS = FEWER
    for each in calls if every else calls[::3]:
        look(*each)
    recursion.SHORTEST_PIECE, recursion.WARM_UP, recursion.WORTHWHILE = 1, 0.01, 1.0  # so that envs are cut
    for name, *call_in_pieces in calls[:2] if every else ():
        look(f"{name} in pieces", *call_in_pieces)
    recursion.STAGED_STEPS = 1
    for name, function, arguments in calls[:2] if every else ():
        look(f"{name} in stages", function, {**arguments, "gamma": 1.0, "gae_lambda": 1.0})
    recursion.WORTHWHILE, recursion.MOST_STAGED = 0.0, 0  # and now they are neither cut nor staged
    # The PTX says how each operation is rounded, and ptxas keeps to that. A dtype changes the same in every variant,
    # and all steps are alike.
    CUDABackend.make_cubin = lambda *given: b""
    recursion.STEPS = recursion.FEWER_STEPS = recursion.FEWEST_STEPS = backend.STEPS = moments.STEPS = 1
    both = zip(variants(np.dtype(np.float32)), variants(np.dtype(np.float64)), strict=True)
    for number, of_each_dtype in enumerate(islice(both, 0, None, every) if every else ()):
        look(*of_each_dtype[number % 2], machine_code=False)
    print(json.dumps([mistakes, findings]))


@triton.jit
def planted(rewards, values, returns, gamma: tl.float64, LANES: tl.constexpr):  # noqa: N803
    """r + gamma V, which a compiler may fuse."""
    lanes = tl.arange(0, LANES)
    reward, value = tl.load(rewards + lanes), tl.load(values + lanes)
    tl.store(returns + lanes, reward + tl.full((LANES,), gamma, tl.float64).to(reward.dtype) * value)


@triton.jit
def flushed(rewards, values, returns, gamma: tl.float64, LANES: tl.constexpr):  # noqa: N803
    """r + V, where denormals become 0."""
    lanes = tl.arange(0, LANES)
    reward, value = tl.load(rewards + lanes), tl.load(values + lanes)
    total = tl.inline_asm_elementwise("add.rn.ftz.f32 $0, $1, $2;", "=f,f,f", [reward, value], tl.float32, True, 1)
    tl.store(returns + lanes, total)


def found_in_mistakes(architecture):
    """Return what is found in kernels with a mistake, and in the first of them without its mistake."""
    ones, found = torch.ones(32), {}
    for what, kernel, fusion in (("fused", planted, True), ("not fused", planted, False), ("flushed", flushed, False)):
        binary = kernel.warmup(ones, ones, ones, 0.9, LANES=32, grid=(1,), num_warps=1, enable_fp_fusion=fusion)
        found[what] = found_in(binary), found_in_machine_code(binary, architecture)
    return found
