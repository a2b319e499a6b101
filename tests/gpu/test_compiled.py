"""What Triton compiles and launches for GPUs that need not be there: no bit changes, and the parameters are right."""

import os
import shutil

import pytest
import torch

EVERY = int(os.environ.get("FASTGAE_TEST_EVERY", "6"))  # of how many variants one is compiled; at night all are
ONE_WARP, STREAM = 32, 77
NONE = [0.0] * 5  # the lambda of the returns, and the constants of V-trace


@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_nothing_is_fused_or_flushed(report, architecture):
    """The machine code of the kernels rounds each operation on its own and keeps denormals."""
    every = EVERY if architecture == 90 else 0  # what an architecture changes is the same in every variant
    mistakes, findings = report("compiled", architecture, every)
    assert len(findings) >= (80 // every if every else 2)
    assert not {name: found for name, found in findings.items() if found}
    for number in range(2):  # in PTX, and in machine code: a mistake would be found
        assert any("fma" in each.lower() for each in mistakes["fused"][number])
        assert mistakes["not fused"][number] == []
        assert any("ftz" in each.lower() for each in mistakes["flushed"][number])


def launch(kernel, programs, parameters, threads=ONE_WARP):
    return [kernel, [programs, 1, 1, threads, STREAM], parameters]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU's own libcuda is loaded")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_parameters(report, tmp_path):
    """Of the first call and of those that reuse its plan. A stride of 1 is compiled into the kernel: no parameter."""
    calls = report("launched", str(tmp_path), TRITON_LIBCUDA_PATH=str(tmp_path))
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
