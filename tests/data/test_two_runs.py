"""Two runs with one sidecar: one after the other, at the same time, or of the same data in another place."""

import os
import shutil
import signal

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute

from .recorded import ROWS, assert_same_bits, limit, read, write
from .test_arrays import arrays


def test_at_the_same_time(tmp_path, recorded):
    """The second run ends at once, and the first one is not disturbed."""
    table = recorded.table().append_column("also", pa.array(recorded.rewards))
    source = write(table, tmp_path / "a.parquet", 100)
    refused = []

    def while_another_runs(batch):
        for resume in (False, True):
            with pytest.raises(DataError, match=r"another run is writing .*out\.parquet: wait for its end") as caught:
                compute(source, tmp_path / "out.parquet", values=critic, ends="terminated", resume=resume)
            refused.append(caught)
        return critic(batch)

    def critic(batch):
        return np.zeros(len(batch["also"]))

    for out, values in (("out.parquet", while_another_runs), ("undisturbed.parquet", critic)):
        compute(source, tmp_path / out, values=values, ends="terminated", memory=limit(500), progress=False)
    assert refused
    assert read(tmp_path / "out.parquet").equals(read(tmp_path / "undisturbed.parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "out.parquet", "undisturbed.parquet"]


KILLED = """
import os, signal, sys
from fastgae.data import compute
from fastgae.data.spool import Spool

def add(self, number, *rest):
    added(self, number, *rest)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)

added, Spool.add = Spool.add, add
compute(sys.argv[1], sys.argv[2], memory=sys.argv[3], progress=False)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this platform kills in another way")
@pytest.mark.parametrize("resume", [False, True])
def test_after_one_that_was_killed(tmp_path, recorded, python, resume):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    killed = python(KILLED, str(source), str(out), limit(500), check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "out.parquet.unfinished" / "lock").exists()
    compute(source, out, memory=limit(500), resume=resume, progress=False)
    assert_same_bits(read(out), recorded.result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "out.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".npz"])
@pytest.mark.parametrize("values", ["values", "v.npy"])
def test_a_copy_elsewhere_gives_the_same_bytes(tmp_path, recorded, monkeypatch, suffix, values):
    here, there = tmp_path / "here", tmp_path / "there" / "deeper"
    here.mkdir()
    write(recorded.table(), here / "a.parquet", 100)
    np.save(here / "v.npy", recorded.values)
    shutil.copytree(here, there)
    for name in ("a.parquet", "v.npy"):
        os.utime(there / name, (1e9, 1e9))
    (there / "a.parquet").rename(there / "b.parquet")
    written = []
    for folder, name in ((here, "a.parquet"), (there, "b.parquet")):
        monkeypatch.chdir(folder)
        compute(name, f"out{suffix}", values=values, memory=limit(500), normalize="global", progress=False)
        written.append((folder / f"out{suffix}").read_bytes())
    assert written[0] == written[1]


def test_a_finished_run_is_known_again(tmp_path, recorded):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    first = compute(source, out, progress=False)
    before = out.stat()
    again = compute(source, out, resume=True, progress=False)
    assert (again.mean, again.std, again.steps) == (first.mean, first.std, first.steps)
    assert out.stat() == before


def test_an_older_file_in_place_of_the_source(tmp_path, recorded, monkeypatch):
    """It has the same size, and the same bytes where the digest looks. But it was put there later than the results."""
    monkeypatch.setattr("fastgae.data.asked.BLOCK", 1)
    (tmp_path / "a").mkdir()
    for name, array in arrays(recorded).items():
        np.save(tmp_path / "a" / f"{name}.npy", array)
    np.save(tmp_path / "older.npy", np.where(np.arange(ROWS) == ROWS // 2, np.float32(9), recorded.rewards))
    os.utime(tmp_path / "older.npy", (1e9, 1e9))
    compute(tmp_path / "a", progress=False)
    (tmp_path / "older.npy").replace(tmp_path / "a" / "rewards.npy")
    with pytest.raises(DataError, match=r"a.advantages.npz exists already"):
        compute(tmp_path / "a", resume=True, progress=False)


def test_a_source_that_changes_after_it_was_read(tmp_path, recorded, monkeypatch):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    from fastgae.data import walk

    def finished_after_a_change(*arguments):
        os.utime(source, (1e9, 1e9))
        return kept(*arguments)

    kept = walk.finished
    monkeypatch.setattr(walk, "finished", finished_after_a_change)
    with pytest.raises(DataError, match=r"a\.parquet changed while it was read"):
        compute(source, progress=False)
    assert list(tmp_path.iterdir()) == [source]
