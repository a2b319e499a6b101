"""Two runs with one sidecar: one after the other, at the same time, or of the same data in another place."""

import os
import shutil
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute
from fastgae.data.asked import Asked

from .recorded import CHOICES, ROWS, limit, read, write
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
        patched.setattr("fastgae.data.spool.Spool.finish", stopped)
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
        patched.setattr("fastgae.data.spool.Spool.finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(source, out, resume=True, progress=False)
    (part,) = (tmp_path / "out.parquet.unfinished").glob("*.arrow")
    assert part.stat().st_size < 16 * ROWS  # episode and step alone have as many bytes, if they are not compressed
    for changed, named in (
        ({"ends": "terminated"}, "ends"),
        ({"gamma": 0.5}, "gamma"),
        ({"gae_lambda": 0.5}, "gae_lambda"),
        ({"estimator": "td_lambda"}, "estimator"),
        ({"estimator": "n_step_returns", "n": 4}, "n"),
        ({"memory": "2GB"}, "memory"),
        ({"normalize": "global"}, "normalize"),
        ({"values": "rewards"}, "columns"),
    ):
        with pytest.raises(DataError, match=rf"cannot resume: .*\b{named}\b.* changed since"):
            compute(source, out, resume=True, progress=False, **changed)
    for path in (out, tmp_path / "anew.parquet"):  # where parts of other options lie, and where none do
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
    with pytest.raises(DataError, match=r"a\.advantages\.npz exists already"):
        compute(tmp_path / "a", resume=True, **options)
    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.spool.Spool.finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(tmp_path / "a", tmp_path / "b.npz", **options)
    change(0)
    with pytest.raises(DataError, match=r"cannot resume: file 2 \(rewards\.npy\) changed since"):
        compute(tmp_path / "a", tmp_path / "b.npz", resume=True, **options)


def test_digests_read_samples_of_large_files(tmp_path, monkeypatch):
    """They read all bytes of files that are not large, and of the others the size, the ends and some blocks."""

    def differing(*contents):
        digests = set()
        for content in contents:
            (tmp_path / "a").write_bytes(content)
            digests.add(Asked.of({}, [tmp_path / "a"]).digest())
        return len(digests)

    def one_at(place, size):
        return bytes(place) + b"1" + bytes(size - place - 1)

    monkeypatch.setattr("fastgae.data.asked.WHOLE", 2**16)
    monkeypatch.setattr("fastgae.data.asked.SAMPLED", 2**16)
    for size in (3, 4096, 2**16):
        assert differing(*(one_at(place, size) for place in (0, size // 2, size - 1))) == 3
    assert differing(*(one_at(place, 10**6) for place in (0, 5000, 5001, 10**6 - 1))) == 3
    assert differing(*map(bytes, (10**6, 10**6 + 1, 2 * 10**6))) == 3


def test_a_source_that_changes_after_it_was_read(tmp_path, recorded, monkeypatch):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    from fastgae.data import walk

    def results_after_a_change(*arguments):
        os.utime(source, (1e9, 1e9))
        return kept(*arguments)

    kept = walk.results
    monkeypatch.setattr(walk, "results", results_after_a_change)
    for resume in (False, True):
        with pytest.raises(DataError, match=r"a\.parquet changed while it was read"):
            compute(source, resume=resume, progress=False)
        assert list(tmp_path.iterdir()) == [source]
        os.utime(source, (2e9, 2e9))


def test_results_are_written_once(tmp_path, recorded, monkeypatch):
    """The same bytes as through kept parts, where runs cut episodes, and where an episode is longer than a run."""
    table, middle = recorded.table(), int(recorded.first[len(recorded.first) // 2])
    parts = {"a.arrow": table.slice(0, middle), "b.arrow": table.slice(middle)}
    sources = [
        write(table, tmp_path / "steps.parquet", 100),
        [write(part.drop_columns("step"), tmp_path / name, 100) for name, part in parts.items()],
    ]
    for source, choice, suffix in product(sources, CHOICES[::3], (".parquet", ".npz")):
        for rows in (200, 700, ROWS):
            kept, once = (tmp_path / f"{name}{suffix}" for name in ("kept", "once"))
            options = {**choice, "memory": limit(rows), "overwrite": True, "progress": False}
            compute(source, kept, resume=True, **options)
            with monkeypatch.context() as patched:
                if rows > 400:  # the longest episode
                    patched.setattr("fastgae.data.spool.Spool.add", stopped)
                compute(source, once, **options)
            assert once.read_bytes() == kept.read_bytes(), (source, choice, suffix, rows)
