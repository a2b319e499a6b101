"""Values in a file of their own: the same bits as with a column, and refused where they belong to other rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fastgae

from .recorded import NEXT, ROWS, assert_same_bits, computed, interrupted, limit, names, refused, write

NAMES = ("episode", "step", "rewards", "next_values", "terminated", "truncated")


@pytest.fixture
def source(tmp_path, recorded):
    return write(recorded.table(*NAMES), tmp_path / "source.parquet", 100)


def test_files_that_do_not_fit(tmp_path, recorded, source):
    np.save(tmp_path / "short.npy", recorded.values[1:])
    np.save(tmp_path / "objects.npy", np.array([None] * ROWS), allow_pickle=True)
    (tmp_path / "text.npy").write_text("values")
    np.save(tmp_path / "one.npy", 1.0)
    np.save(tmp_path / "words.npy", np.array(["1"] * ROWS))
    keys = recorded.table("values", "episode", "step")
    tables = {"named": pa.table({"v": recorded.values}), "part": keys.select(["values", "step"])}
    tables |= {
        "_".join(found): keys.rename_columns(["values", *found]) for found in (("eps_id", "t"), ("episode", "t"))
    }
    tables["nothing"], tables["twice"] = keys.slice(0, 0), pa.table([recorded.values] * 2, names=["values"] * 2)
    tables["keys"] = keys.append_column("step", keys["step"])
    tables["words"] = pa.table({"values": ["1"] * ROWS})
    for name, table in tables.items():
        write(table, tmp_path / f"{name}.parquet", 50)
    by_which = "by which its rows would be found; there are"
    for name, message in (
        ("short.npy", r"short\.npy has 2,999 values; expected 3,000, one for each row of the source"),
        ("objects.npy", r"objects\.npy cannot be read: Array can.t be memory-mapped"),
        ("text.npy", r"cannot be read: it does not begin as a \.npy file does; write it with numpy\.save$"),
        ("named.parquet", r"named\.parquet has no column 'values'; there are v"),
        ("one.npy", r"one\.npy holds one number; expected one for each row of the source"),
        ("nothing.parquet", r"there are no rows in .*nothing\.parquet"),
        ("twice.parquet", r"twice\.parquet: there are 2 columns 'values'; expected one"),
        ("keys.parquet", r"keys\.parquet: there are 2 columns 'step'; expected one"),
        ("words.npy", r"words\.npy cannot be read: an array of dtype <U1 and shape \(1,\) holds no numbers"),
        ("words.parquet", r"words\.parquet: the column of values holds string; expected float32, float64 or integers"),
        ("part.parquet", rf"part\.parquet has no column episode, {by_which} step: rename"),
        ("eps_id_t.parquet", rf"has no column episode and no step, {by_which} eps_id, t: rename"),
        ("episode_t.parquet", rf"has no column step, {by_which} episode, t: rename"),
        ("missing.npy", r"values '.*missing\.npy' does not exist, and no column has"),
        (f"{'a' * 300}.npy", r"a\.npy cannot be read: |a\.npy' does not exist"),  # which it is depends on Python
    ):
        refused(message, source, tmp_path / "out.parquet", values=str(tmp_path / name), memory=limit(500))
        assert not any(path.name.startswith("out") for path in tmp_path.iterdir())
    for missing in ("no.parquet", Path("no")):
        refused(f"values '{missing}' does not exist, and no column has", source, values=missing)


def test_next_values_of_another_critic(tmp_path, recorded, monkeypatch):
    """The next values of a source are of another critic than values from elsewhere, unless they are named."""
    table = recorded.table(truncated=np.zeros(ROWS, bool), terminated=recorded.last)
    source = write(table, tmp_path / "a.parquet", 100)
    doubled = 2 * recorded.values
    np.save(tmp_path / "v.npy", doubled)
    how = {"values": str(tmp_path / "v.npy")}
    for named, expected in ((NEXT, {"next_values": recorded.next_values}), ({}, {"last_values": np.float32(0)})):
        got = computed(source, tmp_path / "out.parquet", **how, **named)
        assert_same_bits(got, fastgae.gae(recorded.rewards, doubled, recorded.last, **expected))
    write(recorded.table(others=doubled), source, 100)
    for other in (how, {"values": "others"}):
        refused("the episode is truncated, and there is no value of the state after it", source, **other)
    message = "values and columns={'values': 'others'} name different values: pass one of them"
    refused(message, source, **how, columns={"values": "others"}, error=ValueError)
    write(recorded.table().rename_columns({"values": "others"}), source, 100)
    (tmp_path / "values").mkdir()  # the default names no file
    monkeypatch.chdir(tmp_path)
    for how in ({"columns": {"values": "others", **NEXT["columns"]}}, {"values": "others"}):  # next_values are theirs
        assert_same_bits(computed(source, tmp_path / "out.parquet", **how), recorded.result)


def test_values_that_are_not_those_of_the_rows(tmp_path, recorded, source, monkeypatch):
    far, doubled = recorded.step.copy(), recorded.step.copy()
    far[[7, 1234]], doubled[1] = (10**6, far[1233]), 0
    missing = pa.array(recorded.values, mask=np.arange(ROWS) == 1500)
    monkeypatch.setattr("fastgae.data.plan.SLICE", 1000)
    for changed, message in (
        ({"step": far}, r"v\.parquet has no value for episode \d+, step 7, row 7"),
        ({"episode": np.full(ROWS, 10**6)}, r"v\.parquet has no value for episode 0, step 0, row 0"),
        ({"step": doubled}, r"v\.parquet has no value for episode 0, step 1, row 1"),
        ({"values": missing}, r"v\.parquet: row 1500: values is missing"),
        ({"episode": [[0]] * ROWS}, "rows cannot be found by their keys: Conversion Error"),
        ({"step": [f"{step}.4" for step in recorded.step]}, r"v\.parquet has no value for episode \d+, step \d+, row"),
    ):
        values = write(recorded.table("values", "episode", "step", **changed), tmp_path / "v.parquet", 77)
        refused(message, source, values=values, memory=limit(500))
        assert names(tmp_path) == ["source.parquet", "v.parquet"]
    write(recorded.table("episode", "rewards"), source, 100)
    write(recorded.table("episode", "values").take(np.arange(ROWS)[::-1]), values, 77)
    message = r"v\.parquet has several values for episode \d+$"
    refused(message, source, values=values, ends="terminated", memory=limit(500))
    monkeypatch.setattr("fastgae.data.sorting.LEAST_MB", 1)
    message = "the rows of episodes or their values are scattered, and duckdb needs more memory to sort them"
    refused(message, source, values=values, ends="terminated", memory=limit(500))


def test_a_join_that_was_interrupted(tmp_path, recorded, source):
    table, out = recorded.table("values", "episode", "step").take(np.arange(ROWS)[::-1]), tmp_path / "out.parquet"
    how = {"values": str(write(table, tmp_path / "v.arrow", 77)), "memory": limit(500), "resume": True, **NEXT}
    for at in ("sorting.chain", "walk.compute_run", "state.State.results"):
        interrupted(at, source, out, **how)
    assert_same_bits(computed(source, out, **how), recorded.result)
    assert names(tmp_path) == ["out.parquet", "source.parquet", "v.arrow"]
    how["values"] = str(write(recorded.table("values"), tmp_path / "v.arrow", 77))  # in the order of the source
    assert_same_bits(computed(source, tmp_path / "alone.parquet", **how), recorded.result)
    write(pa.table({"values": recorded.values + 1}), tmp_path / "v.arrow", 77)  # they are others now
    refused(r"out\.parquet exists already", source, out, **how)
