"""The suite's settings of pytest-benchmark, and the fixture that runs every benchmark.

``pytest benchmarks`` runs the suite; ``pytest`` alone does not collect it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from speed.calls import prepared
from speed.contenders import Contender
from speed.rows import Row

COLUMNS = ["min", "median", "ops", "rounds"]  # noise decides the mean and the deviation
SECONDS, ROUNDS = 0.1, 3  # for each benchmark
SLOW_ROUNDS = 2  # of one call each, for the reference
MEMORY = pytest.StashKey[list[tuple[str, str, int, int | None]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("python_files", "bench_*.py")
    given = config.invocation_params.args
    for option, value in (("columns", COLUMNS), ("max_time", str(SECONDS)), ("min_rounds", ROUNDS)):
        if not any(str(argument).startswith(f"--benchmark-{option.replace('_', '-')}") for argument in given):
            setattr(config.option, f"benchmark_{option}", value)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pair every contender of a module with every row of it."""
    if {"row", "contender"} <= set(metafunc.fixturenames):
        pairs = [(row, contender) for row in metafunc.module.ROWS for contender in metafunc.module.CONTENDERS]
        names = [f"{row.name}, {contender.name}".replace("×", "x") for row, contender in pairs]
        metafunc.parametrize(("row", "contender"), pairs, ids=names)


@pytest.fixture
def bench(benchmark: Any) -> Callable[[Row, Contender], None]:
    """Return a function that checks a contender's answer against the numpy backend and then times it."""

    def run(row: Row, contender: Contender) -> None:
        ready = prepared(row)
        assert ready.right(contender), f"{contender.name} differs from numpy on {row.name}"
        benchmark.group, benchmark.name = row.name, contender.name
        if contender.backend == "numpy":
            benchmark.pedantic(ready.call(contender), rounds=SLOW_ROUNDS)
        else:
            benchmark(ready.call(contender))
        if benchmark.stats:  # not with --benchmark-disable
            benchmark.extra_info["steps_per_second"] = row.size / benchmark.stats.stats.min

    return run


@pytest.fixture
def report_memory(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that keeps a line for the table of memory at the end of the report."""
    return lambda *line: request.config.stash.setdefault(MEMORY, []).append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(MEMORY, [])
    if lines:
        terminalreporter.section("memory beside arguments and outputs, at the peak of a call, in bytes")
        terminalreporter.write_line(f"{'row':48}{'backend':10}{'NumPy and Python':>18}{'the process':>18}")
    for row, contender, traced, resident in lines:
        shown = "unknown" if resident is None else f"{resident:,}"
        terminalreporter.write_line(f"{row:48}{contender:10}{traced:18,}{shown:>18}")
