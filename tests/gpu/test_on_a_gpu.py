"""What only a GPU can show: calls never wait for it, and may be captured, compiled and queued on any stream."""

import numpy as np
import pytest
import torch

import fastgae
from fastgae._interop.libraries import FUNCTIONS
from support.cases import make_case
from support.drawn import drawn

from .device import assert_bits, dense, tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

CASE = make_case((37, 70), np.dtype(np.float32), bootstrap="last_values")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_call_waits(name):
    for function, arguments in drawn(name):
        given = tensors(dense(arguments))
        function(**given)  # which compiles the kernels
        torch.cuda.set_sync_debug_mode("error")
        try:
            function(**given)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_captured_call_computes_what_the_tensors_hold_then():
    given = tensors(CASE.arguments())
    fastgae.gae(**given)  # which compiles the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = fastgae.gae(**given)
    other = make_case((37, 70), np.dtype(np.float32), bootstrap="last_values", seed=1)
    for name, held in tensors(other.arguments()).items():
        if isinstance(held, torch.Tensor):
            given[name].copy_(held)
    graph.replay()
    assert_bits(got, fastgae.gae(**other.arguments()))


def test_the_current_stream():
    given, stream = tensors(CASE.arguments()), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10**7)
        given["rewards"].mul_(2)
        got = fastgae.gae(**given)
    torch.cuda.current_stream().wait_stream(stream)
    arguments = CASE.arguments()
    assert_bits(got, fastgae.gae(**{**arguments, "rewards": 2 * arguments["rewards"]}))


def test_compiled_code_of_inductor():
    arguments = CASE.arguments()
    compiled = torch.compile(lambda given: fastgae.gae(**given), fullgraph=True)
    assert_bits(compiled(tensors(arguments)), fastgae.gae(**arguments))
