"""Two runs with one sidecar: one after the other, at the same time, or of the same data in another place."""

import os
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from fastgae.data import compute

from .recorded import NEXT, ROWS, assert_same_bits, computed, interrupted, limit, names, refused, stopped, write

RUN = {"memory": limit(500)}
RESUME = {"resume": True, "progress": False, **RUN}


def test_at_the_same_time(tmp_path, recorded, monkeypatch):
    """The second run ends at once, and the first one is not disturbed, also if it has just removed the folder."""
    table = recorded.table(also=recorded.rewards)
    source, out = write(table, tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    others = []

    def while_another_runs(batch):
        for resume in (False, True):
            message = r"another run is writing .*out\.parquet: wait for its end"
            others.append(refused(message, source, out, values=critic, ends="terminated", resume=resume))
        return critic(batch)

    def critic(batch):
        return np.zeros(len(batch["also"]))

    undisturbed = computed(source, tmp_path / "undisturbed.parquet", values=critic, ends="terminated", **RUN)
    assert computed(source, out, values=while_another_runs, ends="terminated", **RUN).equals(undisturbed)
    assert others
    assert names(tmp_path) == ["a.parquet", "out.parquet", "undisturbed.parquet"]
    monkeypatch.setattr("fastgae.data.state.FileLock.acquire", Mock(side_effect=FileNotFoundError))
    refused("another run is writing .*b.parquet: wait", source, tmp_path / "b.parquet")


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
        compute(name, f"out{suffix}", values=values, normalize="global", progress=False, **NEXT, **RUN)
        written.append((folder / f"out{suffix}").read_bytes())
    assert written[0] == written[1]


LATER = (2e9, 2e9)


def test_times_and_folders_do_not_matter(tmp_path, recorded, monkeypatch):
    """Touched, or copied elsewhere with rsync: the same data, whether the run has finished or not."""
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.setattr("tempfile.tempdir", str(there))  # a killed run would leave a folder there
    here.mkdir()
    source, whole = write(recorded.table(), here / "a.parquet", 100), tmp_path / "whole.parquet"
    first = compute(source, whole, progress=False, **RUN)
    interrupted("state.State.results", source, here / "out.parquet", **RUN)
    os.utime(source, LATER)
    shutil.copytree(here, there)
    for folder in (here, there):
        source, out = folder / "a.parquet", folder / "out.parquet"
        with monkeypatch.context() as patched:  # everything has been computed
            patched.setattr("fastgae.data.walk.compute_run", stopped)
            compute(source, out, **RESUME)
        assert out.read_bytes() == whole.read_bytes()
        os.utime(source, LATER)
        before = out.stat()
        again = compute(source, out, **RESUME)
        assert (again.mean, again.std, again.steps) == (first.mean, first.std, ROWS)
        assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_every_option_is_compared(tmp_path, recorded, monkeypatch):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    how = {"label_quantile": 0.5}
    interrupted("state.State.results", source, out, **how)
    for changed, named in (
        ({"ends": "terminated"}, "ends"),
        ({"gamma": 0.5}, "gamma"),
        ({"gae_lambda": 0.5}, "gae_lambda"),
        ({"estimator": "discounted_returns"}, "estimator"),
        ({"estimator": "n_step_returns", "n": 4}, "n"),
        ({"normalize": "global"}, "normalize"),
        ({"values": "rewards"}, "columns"),
        ({"label_quantile": 0.7}, "label_quantile"),
        ({"label_per": "episode"}, "label_per"),
        ({"rewards": "truncated:-1:9"}, "rewards"),
        ({"out": None, "into": out}, "into"),
    ):
        given = {"out": out, "resume": True, **how, **changed}
        error = refused(rf"cannot resume: .*\b{named}\b.* changed since", source, **given)
        assert "options" not in str(error)
    with monkeypatch.context() as patched:  # nothing is computed again, in another memory
        patched.setattr("fastgae.data.walk.compute_run", stopped)
        assert_same_bits(computed(source, out, resume=True, memory="2GB", num_threads=1, **how), recorded.result)


def test_data_that_change_without_a_trace(tmp_path, recorded):
    """A file of the same size and the same time: only its content differs."""
    source = recorded.save(tmp_path / "run.1")
    rewards = source / "rewards.npy"

    def change(row):
        before = rewards.stat()
        np.lib.format.open_memmap(rewards, "r+")[row] += 1
        os.utime(rewards, ns=(before.st_atime_ns, before.st_mtime_ns))

    compute(source, progress=False)
    change(ROWS // 2)
    refused(r"run\.1\.advantages\.parquet exists already", source, **RESUME)
    interrupted("state.State.results", source, tmp_path / "b.arrow", **RUN)
    change(0)
    refused(r"cannot resume: file 3 \(rewards\.npy\) changed since", source, tmp_path / "b.arrow", **RESUME)


@pytest.mark.parametrize("changed", [True, False])
def test_a_large_file_that_was_written_again(tmp_path, recorded, monkeypatch, changed):
    """Its contents count if its time is another one: 0 bytes stand for the limit of what is small."""
    monkeypatch.setattr("fastgae.data.state.SMALL", 0)
    source, out = recorded.save(tmp_path / "a"), tmp_path / "out.parquet"
    rewards = source / "rewards.npy"
    interrupted("state.State.results", source, out, resume=True, **RUN)
    np.save(rewards, recorded.rewards + changed)
    os.utime(rewards, (1e9, 1e9))
    if changed:
        refused(r"cannot resume: file \d \(rewards\.npy\) changed since", source, out, **RESUME)
    else:
        assert_same_bits(computed(source, out, **RESUME), recorded.result)
        os.utime(rewards, (2e9, 2e9))  # it is not known what the results were made of
        refused(r"out\.parquet exists already", source, out, **RESUME)
