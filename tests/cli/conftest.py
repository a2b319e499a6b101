"""Fixtures of the tests of the command line."""

import pytest

from fastgae.cli import demo
from fastgae.cli.main import main


@pytest.fixture(autouse=True)
def hardly_measured(monkeypatch):
    """Let the demo call every backend a few times alone: no test asks how long a call takes."""
    monkeypatch.setattr(demo.best_seconds, "__defaults__", (iter, 2, 1e-4))


@pytest.fixture
def ran(capsys):
    """Run a command that must end with this status, and return what it prints, as ``out`` and ``err``."""

    def run(*arguments, status=0):
        assert main([*map(str, arguments)]) == status, arguments
        return capsys.readouterr()

    return run
