"""What pytest collects here, how it reports, and the one way in which every benchmark is run.

pytest never comes here unless it is told to: ``pytest benchmarks``.
"""

from collections.abc import Callable
from typing import Any

import pytest

from calls import prepared
from rows import Contender, Row

COLUMNS = ["min", "median", "ops", "rounds"]  # the mean and the deviation are those of the noise
SECONDS, ROUNDS = 0.1, 3  # of a benchmark
SLOW_ROUNDS = 2  # of the reference, one call each
MEMORY = pytest.StashKey[list[tuple[str, str, int, int | None]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("python_files", "bench_*.py")
    given = config.invocation_params.args
    for option, value in (("columns", COLUMNS), ("max_time", str(SECONDS)), ("min_rounds", ROUNDS)):
        if not any(str(argument).startswith(f"--benchmark-{option.replace('_', '-')}") for argument in given):
            setattr(config.option, f"benchmark_{option}", value)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every contender of a module on every of its rows."""
    if {"row", "contender"} <= set(metafunc.fixturenames):
        pairs = [(row, contender) for row in metafunc.module.ROWS for contender in metafunc.module.CONTENDERS]
        names = [f"{row.name}, {contender.name}".replace("×", "x") for row, contender in pairs]
        metafunc.parametrize(("row", "contender"), pairs, ids=names)


@pytest.fixture
def bench(benchmark: Any) -> Callable[[Row, Contender], None]:
    """Times a contender on a row, after its answer was found to have the bits of the numpy backend."""

    def run(row: Row, contender: Contender) -> None:
        ready = prepared(row)
        assert ready.right(contender), f"{contender.name} differs from numpy on {row.name}"
        benchmark.group, benchmark.name = row.name, contender.name
        if contender.backend == "numpy":
            benchmark.pedantic(ready.call(contender), rounds=SLOW_ROUNDS)
        else:
            benchmark(ready.call(contender))
        if benchmark.stats:  # not with --benchmark-disable
            benchmark.extra_info["steps_per_second"] = row.steps * row.envs / benchmark.stats.stats.min

    return run


@pytest.fixture
def report_memory(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps a line of the table of memory, which comes after those of time."""
    return lambda *line: request.config.stash.setdefault(MEMORY, []).append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(MEMORY, [])
    if lines:
        terminalreporter.section("memory beside arguments and outputs, at the peak of a call, in bytes")
        terminalreporter.write_line(f"{'row':48}{'backend':10}{'NumPy and Python':>18}{'the process':>18}")
    for row, contender, traced, resident in lines:
        shown = "unknown" if resident is None else f"{resident:,}"
        terminalreporter.write_line(f"{row:48}{contender:10}{traced:18,}{shown:>18}")
