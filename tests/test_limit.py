"""The addition that benchmarks call the limit is an addition, of every size and alignment."""

import shutil
from itertools import product

import numpy as np
import pytest

from speed.limit import streaming_add

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


def test_it_adds_and_writes_nothing_else():
    for size, offset in product((0, 1, 15, 16, 17, 33, 1000), (0, 1, 15)):
        a, b = np.random.default_rng(size).standard_normal((2, size), np.float32)
        room = np.full(size + 64, np.nan, np.float32)
        out = room[offset:][:size]
        streaming_add()(a, b, out)
        assert np.array_equal(out, a + b)
        assert np.isnan(room).sum() == 64
