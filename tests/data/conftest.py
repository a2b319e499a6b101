"""Tests of fastgae.data need the extra "data"."""

import importlib.util

import pytest

if importlib.util.find_spec("pyarrow") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def few():
    from .recorded import Recorded

    return Recorded(rows=60)
