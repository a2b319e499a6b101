"""What Triton's own launcher hands to CUDA in calls of ours, without a GPU: libcuda.c shows every launch.

Triton cannot launch in a process in which it interprets, so ``report`` runs in one of its own. Tensors are on the CPU,
and torch says that this is a GPU.
"""

import ctypes
import functools
import json
import struct
import subprocess
from pathlib import Path

import torch
import triton

import fastgae
from speed.gpu.compiled import load_the_backend

INCLUDED = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
FORMATS = {"i1": "?", "i8": "b", "i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
STREAM = 77
RESULTS = "advantages", "returns"
SHOW = ctypes.CFUNCTYPE(None, *[ctypes.c_uint] * 4, *[ctypes.c_void_p] * 2, ctypes.POINTER(ctypes.c_void_p))


def built(folder):
    """Compile libcuda.c, under the name by which Triton looks for it, and load it before Triton does."""
    library = Path(folder, "libcuda.so.1")
    source = Path(__file__).with_name("libcuda.c")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-I", INCLUDED, "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True
    )
    return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def flat(signature):
    """Yield the types of the parameters that a kernel has at run time."""
    for each in signature:
        if isinstance(each, tuple):
            yield from flat(each)
        elif each != "constexpr":
            yield each


def report(folder):
    """Print the launches of some calls, each of them made twice, with other tensors."""
    library, launches, binaries, known = built(folder), [], [], {}
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device: (9, 0)
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM
    warmup = triton.JITFunction.warmup

    def noted(*given, **named):
        binaries.append(warmup(*given, **named))
        return binaries[-1]

    def name_of(address):
        for name, tensor in known.items():
            place = address - tensor.data_ptr()
            if 0 <= place < tensor.nbytes:
                return f"{name}+{place // tensor.itemsize}" if place else name
        return "new" if address else None

    @SHOW
    def show(x, y, z, threads, stream, function, parameters):
        binary = next(each for each in binaries if each.function == function)
        shown = []
        for number, kind in enumerate(flat(binary.src.signature.values())):
            code = "Q" if kind.startswith("*") else FORMATS[kind]
            (value,) = struct.unpack(code, ctypes.string_at(parameters[number], struct.calcsize(code)))
            shown.append(name_of(value) if kind.startswith("*") else value)
        launches[-1].append([binary.metadata.name, [x, y, z, threads, stream], shown])

    triton.JITFunction.warmup = noted
    ctypes.c_void_p.in_dll(library, "launched").value = ctypes.cast(show, ctypes.c_void_p).value
    load_the_backend()
    from fastgae._backends.triton import recursion

    for words in ("STEPS", "FEWER_STEPS", "FEWEST_STEPS"):
        setattr(recursion, words, 1)  # of a turn: fewer compile faster

    def twice(function, tensors, **given):
        """Make a call, and again with other tensors: a plan launches its kernels in another way from then on."""
        for again in (False, True):
            known.clear()
            known.update(tensors())
            launches.append([])
            arguments = {name: each for name, each in known.items() if name not in RESULTS}
            compiled = len(binaries)
            function(**arguments, **given, out=tuple(known[name] for name in RESULTS), backend="triton")
            assert not again or len(binaries) == compiled

    twice(fastgae.gae, functools.partial(rollout, 5, 3), gamma=0.5, gae_lambda=0.25)
    twice(fastgae.gae, functools.partial(rollout, 4096, 1), gamma=0.5, gae_lambda=0.25)
    twice(fastgae.gae_packed, sequences, terminated=None, gamma=1.0, gae_lambda=1.0)
    print(json.dumps(launches))


def rollout(steps, envs):
    return {
        "rewards": torch.ones((steps, envs)),
        "values": torch.ones((steps, 2 * envs))[:, 1::2],
        "terminated": torch.zeros((steps, envs), dtype=torch.bool),
        "last_values": torch.ones(envs),
        "advantages": torch.empty((steps, envs)),
        "returns": torch.empty((steps, envs)),
    }


def sequences():
    numbers = {name: torch.ones(20) for name in ("rewards", "values", "advantages", "returns")}
    return {**numbers, "cu_seqlens": torch.tensor([0, 7, 20], dtype=torch.int32)}
