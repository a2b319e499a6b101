"""Tables in files: the same bits as one call in memory, whatever the files, row groups, memory and order of rows."""

import dataclasses
import errno
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastgae
from fastgae.data import DataError, WriteError, compute, tables
from fastgae.data.rows import Part, Rows, even
from fastgae.data.tables import arrow, parquet

from .recorded import ROWS, assert_same_bits, computed, interrupted, limit, read, refused, write

ONES = {"ends": "terminated", "gamma": 1.0, "gae_lambda": 1.0}


def test_what_fsync_raises_is_raised(tmp_path, recorded, monkeypatch):
    """Earlier results stay. A file that is not on the disk does not replace them."""
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    compute(source, out, progress=False)

    def broken(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    refused(os.strerror(errno.EIO), source, out, error=WriteError, overwrite=True, gamma=0.5)
    assert_same_bits(read(out), recorded.result)


def test_many_small_row_groups_and_files():
    """The rows that wait are counted once, and not again with each batch; and metadata make no other columns."""
    asked = []
    batch = type("Batch", (), {"num_rows": property(lambda self: asked.append(self) or 1)})()
    with pytest.raises(TypeError):  # at the end, from pyarrow
        list(even([batch] * 100, 1000))
    assert len(asked) == 100
    schemas = [pa.schema({"a": pa.int64()}, {"pandas": f'{{"stop": {stop}}}'}) for stop in range(100)]
    assert len(Rows([Part(Path("a"), 0, 1, schema, None) for schema in schemas])._known) == 1


def test_a_row_group_larger_than_memory_is_read_in_ranges(tmp_path, monkeypatch):
    source = write(pa.table({"a": np.random.default_rng(0).random(2**20)}), tmp_path / "a.parquet", 2**20)
    asked = []

    class File(io.FileIO):
        def read(self, size=-1):
            asked.append(size)
            return super().read(size)

    with File(source) as file:
        monkeypatch.setattr(tables, "native", lambda path: pa.PythonFile(file, "r"))
        assert next(parquet(source)[0].batches(["a"], 1000)).num_rows == 1000
    assert 0 < max(asked) <= tables.RANGE < source.stat().st_size


def test_a_reader_that_gives_fewer_rows_than_its_file_says():
    few = pa.record_batch({"a": [1, 2]})
    rows = Rows([Part(Path("a.parquet"), 0, 3, few.schema, lambda columns, most: iter([few]))])
    assert rows.read(0, 2, ["a"]).num_rows == 2
    with pytest.raises(DataError, match=r"a\.parquet has fewer rows than it says"):
        rows.read(0, 3, ["a"])


@pytest.mark.parametrize("rows", [200, 10**6])
def test_episodes_in_turn(tmp_path, recorded, rows):
    """The rows of collectors take turns. Where rows of another episode follow, an episode has not ended."""
    turns, out = np.argsort(recorded.step, kind="stable"), tmp_path / "out.parquet"
    table = recorded.table("episode", "rewards", "values", "next_values", "terminated", "truncated")
    got = computed(write(table.take(turns), tmp_path / "a.parquet", 99), out, memory=limit(rows))
    assert np.array_equal(got["advantages"], recorded.result.advantages[turns])


def test_a_run_that_goes_on_knows_the_names_of_the_rows_that_are_done(tmp_path):
    columns = {"episode": [0, 1, 0], "step": [0, 0, 1], "rewards": [1.0] * 3, "values": [0.0] * 3}
    source, how = write(pa.table(columns), tmp_path / "a.parquet", 1), {"memory": limit(1), "resume": True, **ONES}
    interrupted("walk.compute_run", source, tmp_path / "out.parquet", after=1, **how)
    assert computed(source, tmp_path / "out.parquet", **how)["advantages"].to_pylist() == [2.0, 1.0, 1.0]


def test_an_episode_without_a_name_goes_on_in_another_file(tmp_path, recorded):
    table, cut = recorded.table("rewards", "values", "next_values", "terminated", "truncated"), recorded.first[3] + 2
    files = [write(part, tmp_path / f"{len(part)}.parquet", 99) for part in (table.slice(0, cut), table.slice(cut))]
    assert_same_bits(computed(files, tmp_path / "out.parquet", memory=limit(200)), recorded.result)


@pytest.mark.parametrize("rows", [2, 10**6])
def test_names_that_begin_again_in_every_file(tmp_path, rows):
    """Only flags or steps tell whether the same name, in two files or after other rows, is the same episode."""
    names = {"adjacent": [0] * 5, "texts": ["a"] * 5, "scattered": [0, 0, 1, 1, 2], "interleaved": [0, 1, 0, 1, 0]}
    for kind, episode in names.items():
        table = pa.table({"episode": episode, "rewards": [1.0] * 5, "values": [0.0] * 5})
        ends = [name not in episode[row + 1 :] for row, name in enumerate(episode)]
        flagged = table.append_column("terminated", pa.array(ends))
        for given, wrong in (
            (table, True),
            (table.append_column("env", pa.array(["x"] * 5)), True),
            (table.append_column("terminated", pa.array([False] * 5)), True),
            (flagged, False),
            (
                {number: table.append_column("env", pa.array([number] * 5)) for number in range(3)},
                kind == "interleaved",
            ),
        ):
            files = [tmp_path / f"{number}.parquet" for number in range(3)]
            for number, file in enumerate(files):
                write(given[number] if isinstance(given, dict) else given, file, 3)
            out, arguments = tmp_path / "out.parquet", {"memory": limit(rows), **ONES}
            if wrong:
                goes_on = r"(\d)\.parquet: .*row \d: .*(?!\1)\d\.parquet goes on with .*: name a column of step; "
                turns = "do not follow each other(, and nothing says whether they are one|: name a column of step)"
                refused(f"{goes_on}or, .* pass episode_is=.file.$|{turns}", files, out, **arguments)
            else:
                left = [episode[row:].count(name) for row, name in enumerate(episode)]
                assert computed(files, out, **arguments)["advantages"].to_pylist() == 3 * left, kind
                out.unlink()
        assert sorted(tmp_path.iterdir()) == files
    same = r"0\.parquet goes on with the same episode|nothing says whether they are one episode"
    refused(same, [files[0], files[0]], out, **arguments)


DAMAGE = {
    "flipped": lambda content: bytes(byte ^ (at == len(content) // 2) for at, byte in enumerate(content)),
    "exchanged": lambda content: content[64:128] + content[:64] + content[128:],
    "zeros": lambda content: bytes(100) + content[100:],
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("scattered", [False, True])
def test_what_is_damaged_is_computed_again(tmp_path, recorded, scattered):
    """A killed machine, or a disk with faults: no wrong results, and no traceback."""
    order = np.random.default_rng(0).permutation(ROWS) if scattered else np.arange(ROWS)
    source, right = write(recorded.table().take(order), tmp_path / "a.parquet", 100), tmp_path / "right.parquet"
    how = {"memory": limit(500), "resume": True}
    computed(source, right, **how)
    interrupted("state.State.results", source, tmp_path / "kept.parquet", **how)
    out, unfinished = tmp_path / "out.parquet", tmp_path / "out.parquet.unfinished"
    for name in ("journal.jsonl", "advantages", "returns", *(["sorted.parquet"] if scattered else [])):
        for kind, damage in DAMAGE.items():
            shutil.copytree(tmp_path / "kept.parquet.unfinished", unfinished)
            (unfinished / name).write_bytes(damage((unfinished / name).read_bytes()))
            computed(source, out, **{**how, "overwrite": False})
            assert out.read_bytes() == right.read_bytes(), (name, kind)
            out.unlink()


def test_report(tmp_path, recorded):
    table = recorded.table("episode", "rewards", "values", loss=recorded.rewards)
    report = compute(write(table, tmp_path / "a.parquet", 1000), ends="terminated", progress=False)
    assert report.file == str(tmp_path / "a.advantages.parquet")
    answer = fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    explained = 1 - answer.advantages.astype(float).var() / answer.returns.astype(float).var()
    assert report.explained_variance == pytest.approx(explained)
    assert report.columns == {"episode": "episode", "rewards": "rewards", "values": "values"}
    assert report.unread == ("loss",)
    for text in (f"{ROWS:,}", "episode = episode, rewards = rewards, values = values"):
        assert text in str(report)
    long = dataclasses.replace(report, file="folder/" * 40)
    assert long.file in str(long)
    assert json.loads(report.to_json())["episodes"] == len(recorded.first)
    constant = table.set_column(1, "rewards", pa.array(0 * recorded.rewards))
    source = write(constant, tmp_path / "b.parquet", 1000)
    report = compute(source, ends="terminated", gae_lambda=1.0, progress=False)
    assert report.returns_std > 0  # by rounding, which is no variance to explain
    assert np.isnan(report.explained_variance)
    assert "undefined" in str(report)
    nothing = str(dataclasses.replace(report, findings=()))
    assert "found nothing in a sample of the last steps" in nothing  # how many they are depends on memory


def test_row_groups_and_batches_without_rows(tmp_path, recorded):
    """Some writers leave them behind. Ray reads every piece of a file."""
    table = recorded.table()
    parts = [table.slice(0, 0), table.slice(0, 500), table.slice(0, 0), table.slice(500)]
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in parts:
            writer.write_table(part)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        for part in parts:
            empty = pa.RecordBatch.from_pylist([], table.schema)
            writer.write_batch(part.combine_chunks().to_batches()[0] if len(part) else empty)
    for name, parts_of in (("a.parquet", parquet), ("a.arrow", arrow)):
        assert Rows(parts_of(tmp_path / name)).read(0, ROWS, table.column_names).equals(table)
        assert_same_bits(computed(tmp_path / name, tmp_path / "out.parquet"), recorded.result)


def test_the_sample_for_diagnose_may_begin_within_an_episode(tmp_path, recorded, monkeypatch):
    monkeypatch.setattr("fastgae.data.report.SAMPLE", sample := ROWS - int(recorded.first[3]) - 1)
    assert not recorded.last[-sample - 1]
    table = recorded.table("episode", "step", "rewards", "values", terminated=recorded.last)
    source = write(table, tmp_path / "a.parquet", 100)
    answer = fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    assert_same_bits(computed(source, tmp_path / "out.parquet"), answer)
