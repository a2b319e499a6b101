"""Two runs with one sidecar: one after the other, at the same time, or of the same data in another place."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute
from fastgae.data.state import State

from .recorded import ROWS, limit, read, write
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


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
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


def identity(path):
    """Return what changes if a file is written again, but not if it is read."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def test_a_finished_run_is_known_again(tmp_path, recorded):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    first = compute(source, out, progress=False)
    before = identity(out)
    again = compute(source, out, resume=True, progress=False)
    assert (again.mean, again.std, again.steps) == (first.mean, first.std, first.steps)
    assert identity(out) == before


LATER = (2e9, 2e9)


def stopped(*arguments):
    raise KeyboardInterrupt


def test_times_and_folders_do_not_matter(tmp_path, recorded, monkeypatch):
    """Touched, or copied elsewhere with rsync: the same data, whether the run has finished or not."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    source, out = write(recorded.table(), here / "a.parquet", 100), here / "out.parquet"
    options = {"memory": limit(500), "progress": False}
    whole = tmp_path / "whole.parquet"
    compute(source, whole, **options)
    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.state.State.results", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(source, out, resume=True, **options)
    os.utime(source, LATER)
    shutil.copytree(here, there)
    for folder in (here, there):
        with monkeypatch.context() as patched:  # everything has been computed
            patched.setattr("fastgae.data.walk.compute_run", stopped)
            compute(folder / "a.parquet", folder / "out.parquet", resume=True, **options)
        assert (folder / "out.parquet").read_bytes() == whole.read_bytes()
        os.utime(folder / "a.parquet", LATER)
        before = identity(folder / "out.parquet")
        assert compute(folder / "a.parquet", folder / "out.parquet", resume=True, **options).steps == ROWS
        assert identity(folder / "out.parquet") == before


def test_every_option_is_compared(tmp_path, recorded, monkeypatch):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.state.State.results", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(source, out, resume=True, progress=False)
    for changed, named in (
        ({"ends": "terminated"}, "ends"),
        ({"gamma": 0.5}, "gamma"),
        ({"gae_lambda": 0.5}, "gae_lambda"),
        ({"estimator": "discounted_returns"}, "estimator"),
        ({"estimator": "n_step_returns", "n": 4}, "n"),
        ({"normalize": "global"}, "normalize"),
        ({"values": "rewards"}, "columns"),
    ):
        with pytest.raises(DataError, match=rf"cannot resume: .*\b{named}\b.* changed since"):
            compute(source, out, resume=True, progress=False, **changed)
    compute(source, tmp_path / "whole.parquet", progress=False)
    with monkeypatch.context() as patched:  # nothing is computed again, in another memory
        patched.setattr("fastgae.data.walk.compute_run", stopped)
        compute(source, out, resume=True, memory="2GB", progress=False)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    for path in (out, tmp_path / "anew.parquet"):
        path.unlink(missing_ok=True)
        compute(source, path, normalize="global", gamma=0.5, progress=False)
    assert out.read_bytes() == (tmp_path / "anew.parquet").read_bytes()


def test_data_that_change_without_a_trace(tmp_path, recorded, monkeypatch):
    """A file of the same size and the same time: only its content differs."""
    (tmp_path / "a").mkdir()
    for name, array in arrays(recorded).items():
        np.save(tmp_path / "a" / f"{name}.npy", array)
    rewards = tmp_path / "a" / "rewards.npy"
    options = {"memory": limit(500), "progress": False}

    def change(row):
        before = rewards.stat()
        np.lib.format.open_memmap(rewards, "r+")[row] += 1
        os.utime(rewards, ns=(before.st_atime_ns, before.st_mtime_ns))

    compute(tmp_path / "a", **options)
    change(ROWS // 2)
    with pytest.raises(DataError, match=r"a\.advantages\.parquet exists already"):
        compute(tmp_path / "a", resume=True, **options)
    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.state.State.results", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(tmp_path / "a", tmp_path / "b.arrow", **options)
    change(0)
    with pytest.raises(DataError, match=r"cannot resume: file 2 \(rewards\.npy\) changed since"):
        compute(tmp_path / "a", tmp_path / "b.arrow", resume=True, **options)


def test_a_source_that_changes_after_it_was_read(tmp_path, recorded, monkeypatch):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)

    def results_after_a_change(*arguments):
        os.utime(source, (1e9, 1e9))
        return kept(*arguments)

    kept = State.results
    monkeypatch.setattr(State, "results", results_after_a_change)
    for resume in (False, True):
        with pytest.raises(DataError, match=r"a\.parquet changed while it was read"):
            compute(source, resume=resume, progress=False)
        assert list(tmp_path.iterdir()) == [source]
        os.utime(source, (2e9, 2e9))
