"""Data that cannot be computed: an error that names the file, the episode and the step, and nothing left behind."""

import importlib.util
import json
import math

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import compute, on_table, sorting, walk
from fastgae.data.state import State

from .recorded import ROWS, limit, names, read, refused, write


def test_columns(tmp_path, recorded):
    source = write(recorded.table("episode", "rewards", "values"), tmp_path / "a.parquet", 100)
    for arguments, message in (
        ({}, 'nothing says which episodes ended for good: name a column of "terminated", False if none did, or of'),
        ({"columns": {"rewards": "reward"}}, "no column 'reward' for rewards; there are episode, rewards, values"),
        ({"columns": {"reward": "rewards"}}, "columns={'reward': 'rewards'}: unknown role reward; the roles are "),
        ({"ends": "truncated"}, 'ends must be "terminated" or None'),
        ({"columns": {"rewards": None}}, "columns={'rewards': None} leaves rewards out, which gae needs"),
        ({"format": "csv"}, "format must be"),
        ({"normalize": "per_env"}, "normalize must be"),
        ({"gamma": 1.5}, "gamma"),
        ({"plot": "a.gif"}, "plot: expected a file name that ends in"),
    ):
        refused(message, source, error=ValueError, **arguments)
    refused("columns must be a dict, such as", source, error=TypeError, columns=["rewards"])
    refused("source is an empty list: expected a path", [])
    refused("format must be one of auto, .*, got \\[]$", source, error=ValueError, format=[])
    for name in ("resume", "overwrite", "progress"):
        refused(f"^{name} must be True or False, got 'no'$", source, error=TypeError, **{name: "no"})
    for name in ("out", "into", "plot"):
        message, how = f"^{name} must be a path, got b'out.parquet'$", {name: b"out.parquet", "ends": "terminated"}
        refused(message, source, error=TypeError, **how)
    ended = ("episode", "step", "rewards", "values", "terminated")
    for table, message in (
        (recorded.table("rewards", "values", done=recorded.last), "may be a time limit"),
        *(
            (recorded.table(episode=episode), r"b.parquet: .*episode holds .*; expected integers")
            for episode in (pa.array(recorded.rewards), pa.array([b"name"] * ROWS), pa.array([[1]] * ROWS))
        ),
        (recorded.table().append_column("rewards", pa.array(recorded.rewards)), "2 columns 'rewards' for rewards"),
        (recorded.table(rewards=pa.array(["1"] * ROWS)), "the column of rewards holds string; expected float32"),
        *(
            (recorded.table(terminated=pa.array(flags)), f"terminated holds {kind}; expected bool, or numbers that")
            for flags, kind in ((["no"] * ROWS, "string, such as 'no'"), ([[0]] * ROWS, r"list<.*>, such as \[0\]"))
        ),
        (
            recorded.table(*ended, truncated=np.zeros(ROWS, bool)),
            r"row \d+: the episode ends without a flag, .*next_values.*ends=\"terminated\"",
        ),
        (recorded.table().slice(0, 0), r"there are no rows in .*b\.parquet"),
    ):
        refused(message, write(table, tmp_path / "b.parquet", 100))
    assert names(tmp_path) == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_files_of_other_columns(tmp_path, recorded, suffix):
    first = write(recorded.table().slice(0, 1000), tmp_path / f"a{suffix}", 100)
    rest, out = recorded.table().slice(1000), tmp_path / "out.arrow"
    second = write(rest.drop_columns("next_values"), tmp_path / f"b{suffix}", 100)
    message = rf"b{suffix} has no column 'next_values', but .*a{suffix} has one"
    refused(message, [first, second], out, memory=limit(100))
    at = rest.schema.get_field_index("rewards")
    write(rest.set_column(at, "rewards", rest["rewards"].cast(pa.string())), second, 100)
    refused(rf"b{suffix} and .*a{suffix} have different columns: .*float vs string", [first, second], out)
    rewards = pa.array(np.where(np.arange(len(rest)) == 34, np.float32(np.nan), rest["rewards"]))
    write(rest.set_column(at, "rewards", rewards), second, 100)
    for rows in (30, 10**6):  # the number of a row is that in its file
        refused(rf"b{suffix}: episode \d+, step \d+, row 34: rewards is NaN", [first, second], out, memory=limit(rows))
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_a_sidecar_among_the_files_of_a_folder(tmp_path, few):
    for name in ("a.parquet", "b.parquet"):
        write(few.table(), tmp_path / name, 100)
    compute(tmp_path / "a.parquet", progress=False)
    message = r"a.advantages.parquet has no column 'rewards', .*; it holds results of fastgae: move it elsewhere"
    refused(message, tmp_path, tmp_path / "out.arrow", episode_is="file")


def test_results_that_could_be_taken_for_data_of_a_dataset(tmp_path, recorded):
    names = {"episode": "episode_index", "step": "frame_index", "rewards": "next.reward"}
    for folder in ("data", "meta"):
        (tmp_path / folder).mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"total_frames": ROWS}))
    table = recorded.table("episode", "step", "rewards", "values").rename_columns(names)
    write(table, tmp_path / "data" / "a.parquet", 100)
    for name in ("out", "into"):
        place = {name: tmp_path / "data" / "b.parquet"}
        refused("belongs to the source, and the next run would read it as data", tmp_path, **place, ends="terminated")
    assert compute(tmp_path, ends="terminated", progress=False).steps == ROWS
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"total_frames": ROWS + 1}))
    refused("info.json says that there are 3001 frames; there are 3000", tmp_path, ends="terminated")


@pytest.mark.parametrize("name", [int, str, float])
def test_a_name_is_missing_before_an_end_without_a_flag(recorded, name):
    """Only the names of the rows before are read to see whether the rest of the episode is among them."""
    episode, flags = list(map(name, recorded.episode)), recorded.terminated | recorded.truncated
    episode[3] = math.nan if name is float else None
    flags[recorded.last.nonzero()[0][-2]] = False
    table = recorded.table("step", "rewards", "values", episode=pa.array(episode), terminated=flags)
    refused("^the table: episode (None|nan), step 3, row 3: episode ", table, memory=limit(100))


def test_a_file_that_vanishes_while_rows_are_sorted(tmp_path, recorded, monkeypatch):
    table = recorded.table().take(np.random.default_rng(0).permutation(ROWS))
    first, second = (write(table.slice(begin, 1500), tmp_path / f"{begin}.parquet", 100) for begin in (0, 1500))
    sort = walk.sort
    monkeypatch.setattr(walk, "sort", lambda *given: second.unlink() or sort(*given))
    message = r"^.*1500\.parquet vanished while it was read$"
    refused(message, [first, second], tmp_path / "out.parquet", memory=limit(500))
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("when", ["computed", "written", 1, 3, 9])
def test_a_file_that_changes_on_the_way(tmp_path, recorded, monkeypatch, when):
    """While its rows are computed, written, or sorted: duckdb makes a text of every error in what it reads."""
    order = np.random.default_rng(0).permutation(ROWS) if isinstance(when, int) else np.arange(ROWS)
    source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)

    def change():
        write(recorded.table(rewards=recorded.rewards + 1), source, 100)

    def changing(function):
        return lambda *given: change() or function(*given)

    def sorted_rows(*arguments):
        for number, batch in enumerate(numbered(*arguments)):
            if number == when:
                change()
            yield batch

    numbered = sorting._numbered
    monkeypatch.setattr(sorting, "_numbered", sorted_rows)
    if when == "computed":
        monkeypatch.setattr(walk, "compute_run", changing(walk.compute_run))
    elif when == "written":
        monkeypatch.setattr(State, "results", changing(State.results))
    plot = {"plot": tmp_path / "a.png"} if importlib.util.find_spec("matplotlib") else {}
    refused(r"a\.parquet changed while it was read", source, memory=limit(200), **plot)
    assert list(tmp_path.iterdir()) == [source]
    assert read(source).num_rows == ROWS


def test_arguments_by_other_names():
    for function in (compute, on_table):
        for misnamed, advice in {
            "lambda_": "pass gae_lambda$",
            "gae_lamda": r"do you mean gae_lambda\?$",
            "reward": "pass columns={'rewards': NAME}$",
            "timeouts": "pass columns={'truncated': NAME}$",
            "done": "pass columns={'done': NAME}$",
            "dones": "pass columns={'terminated': NAME}, the flags that env.step returned",
            "episode": "pass columns={'episode': NAME}$",
            "vf_preds": "pass columns={'values': NAME}$",
            "device": "it takes (source|table), ",
        }.items():
            message = rf"^{function.__name__}\(\) got an unexpected keyword argument '{misnamed}': {advice}"
            with pytest.raises(TypeError, match=message):
                function("a.parquet", **{misnamed: "x"})
        message = r"takes \d positional arguments? \((source, out|table)\), and 4 are given: pass"
        with pytest.raises(TypeError, match=message):
            function(*"abcd")
