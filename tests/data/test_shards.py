"""Several processes: each computes a shard, and the merged results are the bytes of one process."""

import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, WriteError, compute

from .recorded import CHOICES, ROWS, Recorded, assert_same_bits, limit, read, write


def shards(source, out, count, **options):
    for number in np.random.default_rng(count).permutation(count) + 1:
        compute(source, out, shard=f"{number}/{count}", progress=False, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".npz"])
def test_the_bytes_of_one_process(tmp_path, recorded, suffix):
    """Shards begin and end inside episodes, row groups and files; some have no rows at all."""
    source, out, whole = tmp_path / "a", tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
    for name, first, last in (("a", 0, 1000), ("b", 1000, 1001), ("c", 1001, ROWS)):
        (tmp_path / "a").mkdir(exist_ok=True)
        write(recorded.table().slice(first, last - first), tmp_path / "a" / f"{name}.parquet", 130)
    everything = names(source)
    for choice in CHOICES if suffix == ".parquet" else CHOICES[:1]:
        for memory, count in ((300, 7), (1000, 2), (10_000, 2)) if choice == CHOICES[0] else ((700, 3),):
            options = {"memory": limit(memory), "normalize": "global", **choice}
            compute(source, whole, progress=False, **options)
            shards(source, out, count, **options)
            compute(source, out, merge=True, progress=False, **options)
            assert out.read_bytes() == whole.read_bytes(), (choice, memory, count)
            out.unlink()
            whole.unlink()
        assert names(tmp_path) == ["a"]
    assert names(source) == everything


def test_ends_of_every_kind(tmp_path, recorded):
    """Episodes that only names, only flags or nothing but the end of the source ends, and a critic."""
    one = Recorded(rows=500)
    alone = one.table("rewards", "values", "terminated", "truncated", terminated=one.last, truncated=one.last & False)
    endless = pa.table({"episode": np.zeros(500, int), "rewards": one.rewards, "values": one.values})
    named = recorded.table("episode", "step", "rewards", "values")
    for table, options in (
        (alone, {}),
        (endless, {"ends": "terminated"}),
        (named, {"ends": "terminated"}),
        (named, {"ends": "terminated", "values": lambda batch: batch["values"] * 2}),
    ):
        table = table.rename_columns(table.column_names)
        if "values" in options:
            table = table.append_column("also", table["values"])
            options["values"] = lambda batch: batch["also"] * 2
        source, out = write(table, tmp_path / "a.parquet", 70), tmp_path / "out.parquet"
        compute(source, tmp_path / "whole.parquet", memory=limit(100), progress=False, **options)
        shards(source, out, 4, memory=limit(100), **options)
        compute(source, out, merge=True, memory=limit(100), progress=False, **options)
        assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
        out.unlink()
        (tmp_path / "whole.parquet").unlink()


def test_shards_that_do_not_fit(tmp_path, recorded):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"

    def refused(message, **options):
        before = names(tmp_path)
        with pytest.raises((DataError, ValueError), match=message):
            compute(source, out, progress=False, memory=limit(500), **options)
        assert names(tmp_path) == before

    refused(r"there are no shards out\.parquet\.shard-\* beside", merge=True)
    for text in ("0/3", "4/3", "3", "a/b", "1/2/3"):
        refused(r"shard must be a number and a count such as 3/8, got ", shard=text)
    refused("shard computes one part", shard="1/2", merge=True)
    compute(source, out, shard="1/3", memory=limit(500), progress=False)
    compute(source, out, shard="3/3", memory=limit(500), progress=False)
    refused(r"out\.parquet\.shard-2-of-3 is missing", merge=True)
    compute(source, out, shard="2/3", memory=limit(500), gamma=0.5, progress=False)
    refused(r"cannot merge .*shard-2-of-3: gamma differs from", merge=True)
    refused(r"shard-2-of-3 exists already", shard="2/3")
    compute(source, out, shard="2/3", overwrite=True, memory=limit(500), progress=False)
    shutil.copy(source, out.with_name("out.parquet.shard-1-of-2"))
    refused(r"shard-2-of-2 is missing: 4 are there, and all must be of one count", merge=True)
    out.with_name("out.parquet.shard-1-of-2").rename(out.with_name("out.parquet.shard-1-of-3"))
    refused(r"shard-1-of-3 is not the file of a shard", merge=True)
    scattered = write(recorded.table().take(np.random.default_rng(0).permutation(ROWS)), source, 100)
    with pytest.raises(DataError, match="the rows of an episode do not follow each other, as shards need"):
        compute(scattered, tmp_path / "b.parquet", shard="1/2", progress=False)


KILLED = """
import os, signal, sys
from fastgae.data import compute
from fastgae.data.spool import Spool

def then(*given, **more):
    result = kept(*given, **more)
    if sys.argv[4] == "add" and given[1] == 1 or sys.argv[4] != "add":
        os.kill(os.getpid(), signal.SIGKILL)
    return result

kept = getattr(Spool, sys.argv[4])
setattr(Spool, sys.argv[4], then)
options = {"merge": True} if sys.argv[5] == "merge" else {"shard": sys.argv[5]}
compute(sys.argv[1], sys.argv[2], memory=sys.argv[3], progress=False, **options)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this platform kills in another way")
def test_killed_shards(tmp_path, recorded, python):
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    memory = limit(200)
    compute(source, tmp_path / "whole.parquet", memory=memory, progress=False)
    for shard, at in (("1/2", "add"), ("2/2", "pack"), ("merge", "unpack"), ("merge", "finish")):
        killed = python(KILLED, str(source), str(out), memory, at, shard, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        options = {"merge": True} if shard == "merge" else {"shard": shard}
        compute(source, out, memory=memory, resume=True, progress=False, **options)
        if shard == "merge":
            assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
            assert names(tmp_path) == ["a.parquet", "out.parquet", "whole.parquet"]
            out.unlink()
            shards(source, out, 2, memory=memory)


def test_overwrite(tmp_path, recorded, python, monkeypatch):
    """The old results stay until the new ones are whole, and only results of fastgae are replaced."""
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    compute(source, out, gamma=0.5, progress=False)
    old = out.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.walk.finished", lambda *_: iter(()).__next__())
        with pytest.raises(StopIteration):
            compute(source, out, overwrite=True, resume=True, progress=False)
    assert out.read_bytes() == old

    def full(self, target):
        if target == out:
            raise OSError("full")
        return replaced(self, target)

    replaced = Path.replace
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(WriteError, match=r"out\.parquet: full"):
            compute(source, out, overwrite=True, resume=True, progress=False)
    assert out.read_bytes() == old
    compute(source, out, overwrite=True, resume=True, progress=False)
    assert_same_bits(read(out), recorded.result)
    for users in (source, tmp_path / "users.parquet"):
        if users != source:
            write(recorded.table(), users, 100)
        before = users.read_bytes()
        with pytest.raises(DataError, match=rf"{users.name} is not from fastgae"):
            compute(source, users, overwrite=True, progress=False)
        assert users.read_bytes() == before
    (tmp_path / "link.parquet").symlink_to(out)
    with pytest.raises(DataError, match=r"link\.parquet is not from fastgae"):
        compute(source, tmp_path / "link.parquet", overwrite=True, progress=False)
    with pytest.raises(DataError, match=r"exists already: .* or pass overwrite=True"):
        compute(source, out, gamma=0.1, progress=False)
