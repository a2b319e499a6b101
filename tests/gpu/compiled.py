"""Compile the kernels for GPUs that need not be there, and list the instructions that would change bits.

The kernels are those that calls launch, with their arguments and options, but a launch only compiles. Triton cannot
compile in a process in which it interprets, so ``report`` runs in one of its own.
"""

import json
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

import fastgae
from fastgae import _dispatch
from support.cases import make_case
from support.tensor_calls import calls, converted

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
ARCHITECTURES = (80, 90, 100)
# A multiplication and an addition that are rounded once, or denormals that become 0.
IN_PTX = re.compile(r"\b(?:fma|mad)\.\S*(?:f16|f32|f64)\S*|\S+\.ftz\S*")
# Two instructions touch no number of ours: ptxas writes constants by HFMA2 with RZ, and divides integers with F2I.FTZ.
IN_SASS = re.compile(r"\b[FD]FMA\S*.*|\bHFMA2\b(?!.*RZ, *RZ).*|\b(?!F2I\.)\w+\.FTZ\S*.*")
FEWER_STEPS = {16: 2, 32: 4}  # the steps of a turn are all alike, and fewer of them compile faster


def compiling_for(architecture):
    """Make Triton believe that this machine has a GPU of an architecture. What is launched must only be compiled."""
    target = GPUTarget("cuda", architecture, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device: 0
        )
    )


def found_in(binary, architecture):
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
            assembler = [
                get_ptxas(architecture).path,
                "--fmad=false",
                f"--gpu-name={sm_arch_from_capability(architecture)}",
            ]
            subprocess.run([*assembler, f"{folder}/kernel.ptx", "-o", cubin], check=True)
        sass = subprocess.run([NVDISASM, "-c", cubin], check=True, capture_output=True, text=True).stdout
    assert "EXIT" in sass
    return IN_PTX.findall(ptx) + IN_SASS.findall(sass)


def variants(dtype):
    """Yield (name, function, arguments) of calls that launch every variant of the kernels."""
    for name, function, arguments in calls(dtype):
        if name != "gae-final_sparse":
            yield name, function, converted(arguments, lambda a: torch.from_numpy(np.ascontiguousarray(a)))
    case = make_case((64, 48), np.dtype(dtype))
    whole = {name: torch.from_numpy(given) for name, given in case.arguments().items() if isinstance(given, np.ndarray)}
    yield "rows", fastgae.gae, whole
    yield (
        "tiles",
        fastgae.gae,
        {
            **{name: given.mT.contiguous() if given.ndim == 2 else given for name, given in whole.items()},
            "time_axis": 1,
        },
    )
    one = {name: given[:1, :1] if given.ndim == 2 else given[:1] for name, given in whole.items()}
    yield "one step of one env", fastgae.gae, one
    lengths = {"rewards": one["rewards"], "values": one["values"], "terminated": one["terminated"]}
    yield "one of one step", fastgae.n_step_returns, {**lengths, "last_values": one["rewards"][0], "n": 1}
    for narrow in (torch.bfloat16, torch.float16):
        yield (
            str(narrow),
            fastgae.gae,
            {name: t.to(narrow) if t.is_floating_point() else t for name, t in whole.items()},
        )


def report(architecture, dtype):
    """Print {name of the variant: instructions that would change bits}, for every variant."""
    torch.cuda.is_available = lambda: True  # so that the backend loads; nothing is computed
    _dispatch._import.cache_clear()
    from fastgae._backends import triton as backend
    from fastgae._interop import torch_devices

    findings, seen, name = {}, set(), ""

    def compile_it(kernel, grid):
        def compiled(*given, **constants):
            if name not in ("rows", "tiles") and "STEPS" in constants:
                constants["STEPS"] = FEWER_STEPS[constants["STEPS"]]
            binary = kernel.warmup(*given, grid=grid, **constants)
            if binary.hash not in seen:
                seen.add(binary.hash)
                findings[f"{name}: {kernel.__name__}"] = found_in(binary, architecture)

        return compiled

    compiling_for(architecture)
    triton.JITFunction.__getitem__ = compile_it
    backend.takes = lambda array: True
    for name, function, arguments in variants(np.dtype(dtype)):  # noqa: B007
        torch_devices.call(function, arguments)
    print(json.dumps(findings))


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


def report_planted(architecture):
    """Print what is found in kernels with a mistake, and in the first of them without its mistake."""
    compiling_for(architecture)
    ones, found = torch.ones(32), {}
    for what, kernel, fusion in (("fused", planted, True), ("not fused", planted, False), ("flushed", flushed, False)):
        binary = kernel.warmup(ones, ones, ones, 0.9, LANES=32, grid=(1,), num_warps=1, enable_fp_fusion=fusion)
        found[what] = found_in(binary, architecture)
    print(json.dumps(found))
