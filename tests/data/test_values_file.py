"""Values in a file of their own: the same bits as with a column, and refused where they belong to other rows."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute

from .recorded import ROWS, assert_same_bits, limit, read, write
from .test_tables import assert_results

NAMES = ("episode", "step", "rewards", "next_values", "terminated", "truncated")


@pytest.fixture
def source(tmp_path, recorded):
    return write(recorded.table(*NAMES), tmp_path / "source.parquet", 100)


@pytest.mark.parametrize("rows", [90, 333, 10**6])
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.arrow"])
def test_same_bits(tmp_path, recorded, source, name, rows):
    file = tmp_path / name
    if file.suffix == ".npy":
        np.save(file, recorded.values)
    else:
        write(recorded.table("values", "step", "episode"), file, 77)
    compute(source, tmp_path / "out.parquet", values=str(file), memory=limit(rows), progress=False)
    assert_results(read(tmp_path / "out.parquet"), recorded)


def test_keys_of_other_types(tmp_path, recorded):
    names = pa.array([f"e{number}" for number in recorded.episode])
    source = write(recorded.table(*NAMES, episode=names), tmp_path / "source.parquet", 100)
    keys = {"step": recorded.step.astype(np.int16), "episode": names.cast(pa.large_string()).dictionary_encode()}
    write(recorded.table("values", "step", "episode", **keys), tmp_path / "v.parquet", 77)
    out = tmp_path / "out.parquet"
    compute(source, out, values=str(tmp_path / "v.parquet"), progress=False)
    assert_same_bits(read(out), recorded.result)
    write(recorded.table("values", "episode"), tmp_path / "numbers.parquet", 77)
    with pytest.raises(
        DataError, match=r"numbers\.parquet has no column step, by which its rows would be found; there are episode"
    ):
        compute(source, tmp_path / "b.parquet", values=str(tmp_path / "numbers.parquet"), progress=False)


def test_scattered_rows(tmp_path, recorded):
    order = np.random.default_rng(0).permutation(ROWS)
    source = write(recorded.table(*NAMES).take(order), tmp_path / "source.parquet", 100)
    np.save(tmp_path / "v.npy", recorded.values[order])
    out = tmp_path / "out.parquet"
    compute(source, out, values=str(tmp_path / "v.npy"), memory=limit(200), progress=False)
    assert_results(read(out), recorded, order)


def test_files_that_do_not_fit(tmp_path, recorded, source):
    def refused(name, message):
        with pytest.raises(DataError, match=message):
            compute(source, tmp_path / "out.parquet", values=str(tmp_path / name), memory=limit(500), progress=False)
        assert not any(path.name.startswith("out") for path in tmp_path.iterdir())

    np.save(tmp_path / "short.npy", recorded.values[1:])
    refused("short.npy", r"short\.npy has 2,999 values; expected 3,000, one for each row of the source")
    np.save(tmp_path / "objects.npy", np.array([None] * ROWS), allow_pickle=True)
    refused("objects.npy", r"objects\.npy cannot be read: Array can.t be memory-mapped")
    (tmp_path / "text.npy").write_text("values")
    refused("text.npy", r"cannot be read: it does not begin as a \.npy file does; write it with numpy\.save$")
    write(recorded.table("values", step=recorded.step), tmp_path / "ok.parquet", 50)
    write(pa.table({"values": recorded.values, "step": recorded.step + 1}), tmp_path / "shifted.parquet", 50)
    refused(
        "shifted.parquet",
        r"shifted\.parquet has no column episode, by which its rows would be found; there are step: rename",
    )
    write(pa.table({"v": recorded.values}), tmp_path / "named.parquet", 50)
    refused("named.parquet", r"named\.parquet has no column 'values'; there are v")
    refused("missing.npy", r"missing\.npy")


def test_another_file_of_values_is_no_resume(tmp_path, recorded, source):
    values, out = tmp_path / "v.npy", tmp_path / "out.parquet"
    np.save(values, recorded.values)
    compute(source, out, values=str(values), progress=False)
    np.save(values, recorded.values + 1)
    with pytest.raises(DataError, match=r"out\.parquet exists already"):
        compute(source, out, values=str(values), resume=True, progress=False)


def test_values_in_another_order(tmp_path, recorded, source):
    """They are found by the columns that name the episode and the step, in a source of any order."""
    rng = np.random.default_rng(0)
    names = pa.array([f"e{number}" for number in recorded.episode])
    keyed = recorded.table("step", "values", "episode", step=recorded.step.astype(np.int16), episode=names)
    for order in (np.arange(ROWS), rng.permutation(ROWS)):
        for suffix in (".parquet", ".arrow"):
            values, out = (
                write(keyed.take(rng.permutation(ROWS)), tmp_path / f"v{suffix}", 77),
                tmp_path / "out.parquet",
            )
            write(recorded.table(*NAMES, episode=names).take(order), source, 100)
            for memory in (200, 10_000):
                compute(source, out, values=str(values), memory=limit(memory), overwrite=True, progress=False)
                assert_same_bits(read(out), recorded.result, order)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "source.parquet", "v.arrow", "v.parquet"]


def test_values_that_are_not_those_of_the_rows(tmp_path, recorded, source):
    def refused(message, **changed):
        write(recorded.table("values", "episode", "step", **changed).slice(0, ROWS), tmp_path / "v.parquet", 77)
        with pytest.raises(DataError, match=message):
            compute(source, values=str(tmp_path / "v.parquet"), memory=limit(500), progress=False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["source.parquet", "v.parquet"]

    step = recorded.step.copy()
    step[[7, 1234]] = 10**6, step[1233]
    refused(r"v\.parquet has no value for episode \d+, step 7, row 7", step=step)
    episode = recorded.episode.copy()
    episode[:] = 10**6
    refused(r"v\.parquet has no value for episode 0, step 0, row 0", episode=episode)
    step = recorded.step.copy()
    step[1] = 0
    refused(r"v\.parquet has no value for episode 0, step 1, row 1", step=step)
    refused(r"keys: .*", step=np.array(["a"] * ROWS))
    write(recorded.table("episode", "rewards"), source, 100)
    values = write(recorded.table("episode", "values").take(np.arange(ROWS)[::-1]), tmp_path / "v.arrow", 77)
    with pytest.raises(DataError, match=r"v\.arrow has several values for episode \d+$"):
        compute(source, values=values, ends="terminated", memory=limit(500), progress=False)


def test_a_join_that_was_interrupted(tmp_path, recorded, source, monkeypatch):
    values, out = (
        write(recorded.table("values", "episode", "step").take(np.arange(ROWS)[::-1]), tmp_path / "v.arrow", 77),
        tmp_path / "out.parquet",
    )
    options = {"values": str(values), "memory": limit(500), "progress": False}

    def stopped(*_, **__):
        raise KeyboardInterrupt

    for at in ("sorting.chain", "walk.compute_run", "state.State.results"):
        with monkeypatch.context() as patched:
            patched.setattr(f"fastgae.data.{at}", stopped)
            with pytest.raises(KeyboardInterrupt):
                compute(source, out, resume=True, **options)
    compute(source, out, resume=True, **options)
    assert_same_bits(read(out), recorded.result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "source.parquet", "v.arrow"]


def delta(folder):
    deltalake = pytest.importorskip("deltalake")
    return partial(deltalake.write_deltalake, folder, mode="append"), lambda: deltalake.DeltaTable(folder).delete(
        SEVENS
    )


SEVENS = "values = 7"


def test_a_delta_table_without_its_deleted_values(tmp_path, recorded):
    """Its files hold other rows than the source, some of which were deleted, and come in another order."""
    source, values = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "v"
    append, delete_sevens = delta(values)
    keys = recorded.table("episode", "step")
    rows = [keys.append_column("values", pa.array(each)) for each in (np.full(ROWS, 7, np.float32), recorded.values)]
    for odd in (0, 1):
        append(part := pa.concat_tables(each.filter(pa.array(recorded.step % 2 == odd)) for each in rows))
        delete_sevens()
    for memory in (500, 10_000):
        out = tmp_path / "out.parquet"
        compute(source, out, values=values, memory=limit(memory), overwrite=True, progress=False)
        assert_same_bits(read(out), recorded.result)
    append(part)
    with pytest.raises(DataError, match=r"v has 5,\d+ values; expected 3,000, one for each row of the source"):
        compute(source, values=values, progress=False)
