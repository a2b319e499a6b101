"""What pytest collects here; it never comes here unless it is told to."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("python_files", "bench_*.py")
