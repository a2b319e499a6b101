"""A computation over recorded data that is killed at random moments, and goes on."""

import random
import signal

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

ROWS, RUNS, KILLS = 20_000, 10, 20

# SIGALRM ends the process as SIGKILL does: at once, wherever it is, without a line of Python.
COMPUTE = """
import signal, sys
from fastgae.data import compute
from fastgae.data.plan import BYTES_PER_ROW

source, out, rows, seconds, resume = sys.argv[1:]
memory = f"{int(rows) * BYTES_PER_ROW}B"
signal.setitimer(signal.ITIMER_REAL, float(seconds))
report = compute(source, out, normalize="global", memory=memory, resume=bool(resume), progress=False)
print(report.seconds, report.mean, report.episodes)
"""


@pytest.fixture(params=["in order", "scattered"])
def source(request, tmp_path):
    rng = np.random.default_rng(0)
    episode = np.sort(rng.integers(0, 300, ROWS))
    step = np.arange(ROWS) - np.searchsorted(episode, episode)
    rewards, values, next_values = rng.normal(size=(3, ROWS)).astype(np.float32)
    table = pa.table(
        {
            "episode": episode,
            "step": step,
            "rewards": rewards,
            "values": values,
            "next_values": next_values,
            "terminated": rng.random(ROWS) < 0.01,
        }
    )
    order = np.arange(ROWS) if request.param == "in order" else rng.permutation(ROWS)
    pq.write_table(table.take(order), tmp_path / "source.parquet", row_group_size=700)
    return tmp_path / "source.parquet"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform cannot kill a process at a time")
def test_killed_and_resumed(python, source):
    def run(out, seconds, resume=""):
        done = python(COMPUTE, str(source), str(out), str(ROWS // RUNS), str(seconds), resume, check=False)
        assert done.returncode in (0, -signal.SIGALRM), done.stderr
        return done

    undisturbed, out = source.with_name("undisturbed.parquet"), source.with_name("out.parquet")
    seconds, *numbers = run(undisturbed, 0).stdout.split()
    expected, kills = undisturbed.read_bytes(), 0
    rng = random.Random(0)
    while kills < KILLS:
        done = run(out, rng.uniform(1e-3, float(seconds)), "resume")
        if done.returncode == 0:
            assert done.stdout.split()[1:] == numbers
            assert out.read_bytes() == expected
            out.unlink()
        else:
            kills += 1
            assert not out.exists() or out.read_bytes() == expected
    out.unlink(missing_ok=True)
    assert run(out, 0, "resume").stdout.split()[1:] == numbers
    assert out.read_bytes() == expected
    assert sorted(path.name for path in source.parent.iterdir()) == [out.name, source.name, undisturbed.name]
