"""Fixtures of the tests of the command line."""

import pytest

from fastgae.cli import demo


@pytest.fixture(autouse=True)
def hardly_measured(monkeypatch):
    """Let the demo call every backend a few times alone: no test asks how long a call takes."""
    monkeypatch.setattr(demo.best_seconds, "__defaults__", (iter, 2, 1e-4))
