"""A computation over recorded data that is killed at random moments, and goes on."""

import signal

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from data.recorded import Recorded, names, write

# SIGALRM ends a process as SIGKILL does: at once, wherever it is, without a line of Python.
RUNS = """
import os, random, signal, sys, time
from pathlib import Path
import duckdb
from fastgae.data import compute
from fastgae.data.plan import BYTES_PER_ROW

source, said = Path(sys.argv[1]), Path("said.txt")
undisturbed, out = source.with_name("undisturbed.parquet"), source.with_name("out.parquet")

def run(out, seconds, **options):
    child = os.fork()  # many times faster than another interpreter
    if child == 0:
        failed = 1
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            options |= {"normalize": "global", "memory": 2_000 * BYTES_PER_ROW, "progress": False}
            report = compute(source, out, **options)
            said.write_text(f"{report.mean} {report.episodes}")
            failed = 0
        finally:
            os._exit(failed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def check_results():
    assert said.read_text() == numbers
    assert out.read_bytes() == expected

begin = time.perf_counter()
assert run(undisturbed, 0) == 0
seconds, rng, kills = time.perf_counter() - begin, random.Random(0), 0
numbers, expected = said.read_text(), undisturbed.read_bytes()
while kills < 20:
    status = run(out, rng.uniform(1e-3, seconds), resume=True)
    assert status in (0, -signal.SIGALRM), status
    if status == 0:
        check_results()
        out.unlink()
    else:
        kills += 1
        assert not out.exists() or out.read_bytes() == expected
out.unlink(missing_ok=True)
assert run(out, 0, resume=True) == 0
check_results()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform cannot kill a process at a time")
@pytest.mark.parametrize("scattered", [False, True])
def test_killed_and_resumed(python, tmp_path, scattered):
    rows = 20_000
    order = np.random.default_rng(0).permutation(rows) if scattered else np.arange(rows)
    (tmp_path / "runs").mkdir()
    source = write(Recorded(rows=rows).table().take(order), tmp_path / "runs" / "source.parquet", 700)
    python(RUNS, str(source))
    assert names(source.parent) == ["out.parquet", "source.parquet", "undisturbed.parquet"]
