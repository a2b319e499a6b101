"""The addition that benchmarks call the limit is an addition, of every size and alignment."""

import shutil

import numpy as np
import pytest

from speed.limit import streaming_add

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 31, 33, 64, 1000])
@pytest.mark.parametrize("offset", [0, 1, 15])
def test_it_adds_and_writes_nothing_else(size, offset):
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal(size, np.float32) for _ in range(2))
    room = np.full(size + 64, np.nan, np.float32)
    out = room[offset:][:size]
    streaming_add()(a, b, out)
    assert np.array_equal(out, a + b)
    assert np.isnan(room).sum() == 64
