"""Every allocation and every thread of a call fails once: MemoryError or the same bits, out never half written."""

import sys

import pytest

from support.backends import needs_cpp

from .every_fault import CALLS
from .faults import COMPILER, compiled, met, run

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the faults are made with the preloading of glibc"),
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here"),
    needs_cpp,
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("num_threads", [1, 4])
def test_every_fault(library, num_threads):
    calls = met(library, num_threads)
    assert calls.keys() == CALLS.keys()
    for name, (allocations, threads) in calls.items():
        assert allocations > 0, name
        assert (threads > 0) == (num_threads > 1), name


def test_faults_in_several_threads(library):
    """A call that finds no memory has no effect on the calls of other threads."""
    assert run(library, "side_by_side", "3") == {"refused": [30_000]}
