"""The addition that benchmarks call the limit is an addition, of every size and alignment."""

import numpy as np
import pytest

_core = pytest.importorskip("fastgae._core", exc_type=ImportError)


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 31, 33, 64, 1000])
@pytest.mark.parametrize("offset", [0, 1, 15])
def test_it_adds_and_writes_nothing_else(size, offset):
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal(size, np.float32) for _ in range(2))
    room = np.full(size + 64, np.nan, np.float32)
    out = room[offset:][:size]
    _core.streaming_add(a, b, out)
    assert np.array_equal(out, a + b)
    assert np.isnan(room).sum() == 64


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (np.zeros(3, np.float32), ValueError),
        (np.zeros(4, np.float64), TypeError),
        (np.zeros(4, ">f4"), TypeError),
        (np.zeros(8, np.float32)[::2], TypeError),
        ([0.0] * 4, TypeError),
        (None, TypeError),
    ],
)
def test_it_refuses_what_it_would_have_to_convert(place, wrong, error):
    given = [np.zeros(4, np.float32) for _ in range(3)]
    given[place] = wrong
    with pytest.raises(error):
        _core.streaming_add(*given)


def test_it_writes_to_no_array_that_is_read_only():
    given = [np.zeros(4, np.float32) for _ in range(3)]
    given[2].flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        _core.streaming_add(*given)
