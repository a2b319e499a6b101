"""What was computed to wrong numbers without a word, or refused with a misleading one, in an earlier version."""

import decimal
import json
import os

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.cli.main import main
from fastgae.data import DataError, compute, on_table
from fastgae.data.state import State

from .recorded import ROWS, assert_same_bits, limit, read, write

quiet = {"progress": False}
ENDS = {"ends": "terminated", **quiet}


def rows(**columns):
    """Return a table of some columns, with rewards of 1 and values of 0."""
    count = len(next(iter(columns.values())))
    return pa.table({**columns, "rewards": np.ones(count), "values": np.zeros(count)})


@pytest.mark.parametrize("names", [("eps_id", "t"), ("episode", "t"), ("eps_id", "step")])
def test_values_with_keys_of_other_names(tmp_path, recorded, names):
    table = recorded.table("episode", "step", "values").rename_columns([*names, "values"])
    values = write(table.take(np.random.default_rng(0).permutation(ROWS)), tmp_path / "v.parquet", 100)
    with pytest.raises(DataError, match=r"v\.parquet has no column .*, by which its rows would be found; .*: rename"):
        compute(recorded.table(), values=values, **quiet)


@pytest.mark.parametrize("changed", [True, False])
def test_a_large_file_that_was_written_again(tmp_path, recorded, monkeypatch, changed):
    """Its contents count if its time is another one: 0 bytes stand for the limit of what is small."""
    monkeypatch.setattr("fastgae.data.state.SMALL", 0)
    (tmp_path / "a").mkdir()
    for name in ("rewards", "values", "next_values", "terminated", "truncated"):
        np.save(tmp_path / "a" / name, getattr(recorded, name))
    rewards, out = tmp_path / "a" / "rewards.npy", tmp_path / "out.parquet"

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(State, "results", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(tmp_path / "a", out, resume=True, memory=limit(500), **quiet)
    np.save(rewards, recorded.rewards + changed)
    os.utime(rewards, (1e9, 1e9))
    if changed:
        with pytest.raises(DataError, match=r"cannot resume: file \d \(rewards\.npy\) changed since"):
            compute(tmp_path / "a", out, resume=True, **quiet)
    else:
        compute(tmp_path / "a", out, resume=True, **quiet)
        assert_same_bits(read(out), recorded.result)
        os.utime(rewards, (2e9, 2e9))
        with pytest.raises(DataError, match=r"out\.parquet exists already"):  # it is not known what it was made of
            compute(tmp_path / "a", out, resume=True, **quiet)


def test_a_column_that_may_name_the_env(recorded):
    """Eight envs in turn are not one."""
    env, flags = np.arange(ROWS) % 8, recorded.terminated.copy()
    flags[-8:] = True
    table = recorded.table("rewards", "values", "terminated", terminated=flags).append_column("env_id", pa.array(env))
    with pytest.raises(DataError, match=r"no column names the episode of a row, and 'env_id' looks .*'env': 'env_id'"):
        compute(table, **ENDS)
    order = np.argsort(env, kind="stable")
    expected = fastgae.gae(recorded.rewards[order], recorded.values[order], flags[order], last_values=0.0)
    for results in (on_table(table, columns={"env": "env_id"}), compute(table, columns={"env": "env_id"}, **quiet)):
        assert np.array_equal(results["advantages"].to_numpy()[order], expected.advantages)
    whole = compute(table, columns={"env": None}, **quiet)
    expected = fastgae.gae(recorded.rewards, recorded.values, flags, last_values=0.0)
    assert np.array_equal(whole["advantages"], expected.advantages)


def test_the_report_says_what_was_read(tmp_path, recorded):
    table = recorded.table("episode", "rewards", "values").append_column("loss", pa.array(recorded.rewards))
    report = compute(write(table, tmp_path / "a.parquet", 1000), **ENDS)
    assert report.columns == {"episode": "episode", "rewards": "rewards", "values": "values"}
    assert report.unread == ("loss",)
    assert "episode = episode, rewards = rewards, values = values" in str(report)


def test_names_that_begin_again_in_one_file(tmp_path):
    """Two collectors, one after the other: five episodes, and three names."""
    table = rows(episode=[0, 0, 1, 1, 0, 0, 1, 1, 2, 2])
    for source in (table, write(table, tmp_path / "a.parquet", 3)):
        for memory in (limit(1), "1GB"):
            with pytest.raises(DataError, match="nothing says whether they are one episode, or several of the same"):
                compute(source, memory=memory, **ENDS)
    flagged = table.append_column("terminated", pa.array([False, True] * 5))
    results = compute(flagged, gamma=1.0, gae_lambda=1.0, **quiet)
    assert results["advantages"].to_pylist() == [2.0, 1.0] * 5


@pytest.mark.parametrize("most", [1, 2, 300])
@pytest.mark.parametrize(
    ("kind", "first"), [("u1", 0), ("i1", -128), ("u8", 2**64 - 256), ("u8", 2**63 - 100), ("i8", 2**62)]
)
def test_steps_that_wrap_around(tmp_path, kind, first, most):
    begin, end = np.iinfo(kind).min, np.iinfo(kind).max
    numbers = [number if number <= end else begin + number - end - 1 for number in range(first, first + 300)]
    source = write(rows(episode=[0] * 300, step=np.array(numbers, kind)), tmp_path / "a.parquet", 7)
    if first + 300 <= end:
        assert compute(source, memory=limit(most), **ENDS).episodes == 1
    else:
        with pytest.raises(DataError, match=r"step -?\d+ is followed by step -?\d+:"):
            compute(source, memory=limit(most), **ENDS)


def test_several_splits(tmp_path, recorded):
    folder = tmp_path / "saved"
    (folder / "train").mkdir(parents=True)
    write(recorded.table(), folder / "train" / "a.stream", 1000)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(DataError, match="saved holds the splits train, test: pass the folder of one"):
        compute(folder, **quiet)
    assert compute(folder / "train", **quiet).steps == ROWS


def test_text_with_two_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("episode,rewards,rewards,values\n0,1,2,3\n")
    with pytest.raises(DataError, match=r"a\.csv: there are 2 columns 'rewards' for rewards; expected one"):
        compute(tmp_path / "a.csv", **ENDS)


def test_a_pattern_needs_a_place_for_results(tmp_path, recorded):
    for number in range(2):
        write(recorded.table("episode", "rewards", "values", episode=recorded.episode + 100 * number),
              tmp_path / f"{number}.parquet", 1000)  # fmt: skip
    with pytest.raises(ValueError, match="the source is 2 paths: say where to write the results, by out"):
        compute(str(tmp_path / "*.parquet"), **ENDS)
    with pytest.raises(DataError, match=r"out\.parquet belongs to the source"):
        compute(str(tmp_path / "*.parquet"), tmp_path / "out.parquet", **ENDS)
    with pytest.raises(DataError, match=r"0\.advantages\.parquet belongs to the source"):
        compute(str(tmp_path / "0*.parquet"), **ENDS)
    assert len(list(tmp_path.iterdir())) == 2


def test_results_are_no_place_for_folders(tmp_path, recorded):
    source = write(recorded.table(), tmp_path / "a.parquet", 1000)
    with pytest.raises(OSError, match=r"cannot write .*No such file or directory"):
        compute(source, tmp_path / "none" / "out.parquet", **quiet)
    assert list(tmp_path.iterdir()) == [source]


def test_values_that_do_not_exist(tmp_path, recorded):
    for values in (tmp_path / "no.npy", str(tmp_path / "no.npy"), "no.parquet"):
        with pytest.raises(DataError, match=r"values '.*no\.(npy|parquet)' does not exist, and no column has"):
            compute(recorded.table(), values=values, **quiet)


@pytest.mark.parametrize(("row", "what"), [("0,1", r"Expected 3 columns, got 2: 0,1"), ("0,1,2,3", "got 4: 0,1,2,3")])
def test_a_ragged_row_of_text(tmp_path, row, what):
    (tmp_path / "a.csv").write_text(f"episode,rewards,values\n0,1,2\n{row}\n0,1,2\n")
    with pytest.raises(DataError, match=rf"a\.csv cannot be read: CSV parse error: Row #3: .*{what}"):
        compute(tmp_path / "a.csv", **ENDS)


def test_ways_out(tmp_path, recorded, capsys):
    """Of names that begin again in every folder, a step that was dropped, a column named dones, and swapped names."""
    for worker in range(2):
        (tmp_path / "runs" / f"worker={worker}").mkdir(parents=True)
        write(recorded.table(), tmp_path / "runs" / f"worker={worker}" / "a.parquet", 1000)
    out = tmp_path / "out.parquet"
    with pytest.raises(DataError, match=r"step \d+ is followed by step \d+: .*several files, pass episode_is=.file."):
        compute(tmp_path / "runs", out, **quiet)
    assert compute(tmp_path / "runs", out, episode_is="file", **quiet).episodes == 2 * len(recorded.first)
    dropped = rows(episode=[0] * 3, step=[0, 1, 3])
    with pytest.raises(DataError, match=r"step 1 is followed by step 3: .*no column be the step: columns=.*None}"):
        compute(dropped, **ENDS)
    assert len(compute(dropped, columns={"step": None}, **ENDS)) == 3
    with pytest.raises(DataError, match=r"such as columns={'done': 'dones'}"):
        compute(rows(episode=[0], dones=[True]), **quiet)
    with pytest.raises(ValueError, match=r"unknown role reward; .*do you mean columns={'rewards': 'reward'}\?"):
        compute(rows(reward=[0]), columns={"reward": "rewards"}, **ENDS)
    source = write(dropped, tmp_path / "a.parquet", 1)
    assert main(["compute", str(source), "--ends", "terminated", "--column", "step="]) == 0
    for option in (["compute", str(source), "--end", "terminated"], ["--versio"]):
        with pytest.raises(SystemExit) as stopped:
            main(option)
        assert stopped.value.code == 2
    (tmp_path / "roll.pt").write_bytes(b"PK\3\4 of torch")
    assert main(["diagnose", str(tmp_path / "roll.pt")]) == 2
    assert "roll.pt" in capsys.readouterr().err


def test_few_bytes_of_memory(tmp_path, recorded):
    """One row at once is slow, and right."""
    source = write(recorded.table().slice(ROWS - 60), tmp_path / "a.parquet", 100)
    compute(source, memory=8, **quiet)
    expected = fastgae.GAEResult(*(array[-60:] for array in recorded.result))
    assert_same_bits(read(tmp_path / "a.advantages.parquet"), expected)
    with pytest.raises(ValueError, match="memory must be an amount of memory such as 256MB, got 0"):
        compute(source, memory=0, **quiet)


@pytest.mark.parametrize("name", [b"x\xff.parquet", b"run:1.parquet", b"s3:1.parquet"])
def test_names_of_files(tmp_path, recorded, name, monkeypatch):
    """A name need not be UTF-8, and a colon makes no URL of it."""
    monkeypatch.chdir(tmp_path)
    try:
        source = write(recorded.table(), tmp_path / "a.parquet", 1000).rename(os.fsdecode(name))
    except OSError:
        pytest.skip("this file system has no such names")
    for path in (source, f"./{source}", os.fsdecode(name)):
        compute(path, "out.parquet", overwrite=True, **quiet)
        assert_same_bits(read(tmp_path / "out.parquet"), recorded.result)


def test_arrays_beside_tables_are_no_data(tmp_path, recorded):
    (tmp_path / "runs").mkdir()
    write(recorded.table("episode", "step", "rewards"), tmp_path / "runs" / "a.parquet", 1000)
    np.save(tmp_path / "runs" / "values.npy", recorded.values)
    out = tmp_path / "out.parquet"
    compute(tmp_path / "runs", out, values=tmp_path / "runs" / "values.npy", **ENDS)
    expected = fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    assert_same_bits(read(out), expected)


def test_exact_casts(tmp_path, recorded):
    """Decimals that are integers name episodes and steps; float16 numbers are float32 ones."""
    names = ("episode", "step")
    integers = {name: [decimal.Decimal(f"{number}.0") for number in getattr(recorded, name)] for name in names}
    half = {name: getattr(recorded, name).astype(np.float16) for name in ("rewards", "values", "next_values")}
    source = write(recorded.table(**integers, **half), tmp_path / "a.parquet", 1000)
    wide = {name: array.astype(np.float32) for name, array in half.items()}
    expected = compute(recorded.table(**wide), **quiet)
    compute(source, **quiet)
    assert read(tmp_path / "a.advantages.parquet")["advantages"].to_pylist() == expected["advantages"].to_pylist()
    with pytest.raises(DataError, match=r"step holds decimal.*; expected integers"):
        compute(recorded.table(step=[decimal.Decimal("0.5")] * ROWS), **quiet)


def test_success_is_read_in_the_last_row_alone():
    table = pa.table({"episode": [0, 0, 1, 1], "ok": pa.array([None, 1.0, 7.0, 0.0]), "values": np.zeros(4)})
    results = compute(table, rewards="ok:-1:10", gamma=1.0, gae_lambda=1.0, **ENDS)
    assert results["advantages"].to_pylist() == [-1, 0, -11, -10]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_copy_keeps_the_schema(tmp_path, recorded, suffix):
    names = pa.array([f"task {number % 3}" for number in recorded.episode]).dictionary_encode()
    table = recorded.table().append_column("task", names).replace_schema_metadata({"info": "of the user"})
    copy = tmp_path / f"copy{suffix}"
    compute(write(table, tmp_path / f"a{suffix}", 170), into=copy, memory=limit(100), **quiet)
    got = read(copy)
    assert got.schema.metadata[b"info"] == b"of the user"
    assert pa.types.is_dictionary(got.schema.field("task").type)
    assert got["task"].to_pylist() == table["task"].to_pylist()


@pytest.mark.parametrize("quantile", [0.1, 0.7])
@pytest.mark.parametrize("order", ["adjacent", "scattered"])
def test_a_quantile_per_task(tmp_path, recorded, quantile, order):
    task = recorded.episode % 5
    places = np.arange(ROWS) if order == "adjacent" else np.random.default_rng(0).permutation(ROWS)
    table = recorded.table().append_column("task_index", pa.array(task)).take(places)
    source = write(table, tmp_path / "a.parquet", 130)
    options = {"label_quantile": quantile, "label_per": "task_index"}
    report = compute(source, memory=limit(300), **options, **quiet)
    advantages, expected = recorded.result.advantages, np.zeros(ROWS, bool)
    for each in range(5):
        own = np.sort(advantages[task == each])
        threshold = own[int(np.ceil(round(quantile * len(own), 6))) - 1]
        assert report.threshold[str(each)] == threshold
        expected[task == each] = advantages[task == each] > threshold
    assert np.array_equal(read(tmp_path / "a.advantages.parquet")["positive"], expected[places])
    for wrong, message in (
        ({"label_per": "task_index"}, "label_per is for labels: pass label_quantile too"),
        ({**options, "label_per": "task"}, "there is no column 'task' for label_per; there are episode"),
    ):
        with pytest.raises(ValueError, match=message):
            compute(source, tmp_path / "b.parquet", **wrong, **quiet)
