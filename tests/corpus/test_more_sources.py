"""The sources that tests/data could draw at random, and does not: each takes 50 ms, and .ci/run has the time."""

import pytest

from data.test_random_sources import SOURCES
from data.test_random_sources import test_same_bits as same_bits


@pytest.mark.parametrize(("seed", "form"), [each for number, each in enumerate(SOURCES) if number % 4])
def test_same_bits(tmp_path, seed, form, monkeypatch):
    same_bits(tmp_path, seed, form, monkeypatch)
