"""The other half of the sources that tests/data draws at random: each takes 50 ms, and .ci/run has the time."""

import pytest

from data.test_random_sources import SOURCES
from data.test_random_sources import test_same_bits as same_bits


@pytest.mark.parametrize(("seed", "form"), SOURCES[1::2])
def test_same_bits(tmp_path, seed, form, monkeypatch):
    same_bits(tmp_path, seed, form, monkeypatch)
