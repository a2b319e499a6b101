"""Triton's own launcher hands the right parameters to CUDA, in the first call and in those that reuse its plan."""

import json
import shutil
from pathlib import Path

import pytest
import torch

PATHS = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]
ONE_WARP, STREAM = 32, 77
NONE = [0.0] * 5  # the lambda of the returns, and the constants of V-trace


def launch(kernel, programs, parameters, threads=ONE_WARP):
    return [kernel, [programs, 1, 1, threads, STREAM], parameters]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU's own libcuda is loaded")
def test_parameters(python, tmp_path):
    """A stride of 1 is compiled into the kernel, so it is no parameter."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    settings = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "TRITON_LIBCUDA_PATH": str(tmp_path)}
    code = f"import sys; sys.path[:0] = {PATHS!r}; from gpu import launched; launched.report({str(tmp_path)!r})"
    calls = json.loads(python(code, **settings))
    assert calls[1::2] == calls[::2]  # each again, with other tensors
    plain, pieces, packed = calls[::2]

    arrays = ["rewards", 3, "values", 6, 2, "terminated", 3, "last_values", 0, "advantages", 3, "returns", 3]
    sizes = [5, 3, 3, 5, 0]  # steps, envs, lanes, steps of a lane, and of its warm-up
    assert plain == [launch("recursion", 1, [*arrays, *sizes, 0.0, 0.0, 0.5, 0.25, *NONE])]

    arrays = ["rewards", 0, "values", 2, 0, "terminated", 0, "last_values", 0, 0, "advantages", 0, "returns", 0]
    states = ["new", 16, "new", 16]  # in which each of the 16 pieces begins and ends
    parameters = [*arrays, *states, 4096, 16, 256, 16, 0.0, 0.0, 0.5, 0.25, *NONE]
    assert pieces == [launch("recursion", 1, parameters)] * 2  # the second one mends

    ends = launch("sequence_steps", 2, ["cu_seqlens", 0, "new", 0, 20, 0.0], 4 * ONE_WARP)
    arrays = ["rewards", 0, "values", 0, "new", 0, "cu_seqlens", 0, "advantages", 0, "returns", 0]
    assert packed == [ends, launch("recursion", 1, [*arrays, 20, 2, 20, 0, 0.0, 0.0, 1.0, 1.0, *NONE])]
