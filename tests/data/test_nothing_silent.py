"""What was computed to wrong numbers without a word, or refused with a misleading one, in an earlier version."""

import decimal
import json
import os

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import Critic, compute, on_table

from .recorded import ROWS, assert_same_bits, computed, limit, read, refused, write

ENDS = {"ends": "terminated", "progress": False}
ONES = {"gamma": 1.0, "gae_lambda": 1.0, "progress": False}


def rows(**columns):
    """Return a table of some columns, with rewards of 1 and values of 0."""
    count = len(next(iter(columns.values())))
    return pa.table({**columns, "rewards": np.ones(count), "values": np.zeros(count)})


def test_a_column_that_may_name_the_env(recorded):
    """Eight envs in turn are not one."""
    env, flags = np.arange(ROWS) % 8, recorded.terminated.copy()
    flags[-8:] = True
    table = recorded.table("rewards", "values", "terminated", terminated=flags, env_id=env)
    refused(r"no column names the episode of a row, and 'env_id' looks .*'env': 'env_id'", table, **ENDS)
    order, envs = np.argsort(env, kind="stable"), {"columns": {"env": "env_id"}}
    expected = fastgae.gae(recorded.rewards[order], recorded.values[order], flags[order], last_values=0.0)
    for results in (on_table(table, **envs), compute(table, progress=False, **envs)):
        assert np.array_equal(results["advantages"].to_numpy()[order], expected.advantages)
    whole = compute(table, columns={"env": None}, progress=False)
    expected = fastgae.gae(recorded.rewards, recorded.values, flags, last_values=0.0)
    assert np.array_equal(whole["advantages"], expected.advantages)


def test_columns_that_look_like_names_or_flags(recorded):
    """They are asked about also beside an env, and where only flags end episodes."""
    names, env = ("rewards", "values", "terminated"), np.zeros(ROWS, int)
    ids, limits = {"ep_id": recorded.episode}, {"truncations": recorded.truncated}
    episodes = "'ep_id' looks as if it did: pass columns={'episode': 'ep_id'}"
    refused(episodes, recorded.table(*names, env=env, **ids), ends="terminated")
    truncated = "'truncations' looks as if it did: pass columns={'truncated': 'truncations'}"
    refused(truncated, recorded.table(*names, env=env, **limits))
    limits["new_episode"] = recorded.last  # of bool, so it names none
    told = compute(recorded.table(*names, done=recorded.last, **limits), **ENDS)  # by done and terminated
    assert told["returns"].equals(compute(recorded.table("episode", *names), **ENDS)["returns"])
    for name, array in (("is_first", recorded.last), ("not_done", ~recorded.last), ("discount_t", ~recorded.last)):
        flags = recorded.table("episode", "rewards", "values", **{name: array})
        assert name not in str(refused("nothing says which episodes ended", flags))


def test_padding_is_no_step(tmp_path, recorded):
    """A mask says where it is, in a table, in lists of steps and in arrays, of envs too."""
    arrays = recorded.arrays("rewards", "values", "terminated", terminated=np.arange(ROWS) % 10 == 9)
    table, ones = pa.table(arrays), np.ones(ROWS)
    padded = arrays | {"mask": np.where(np.arange(ROWS) == 1234, 0.0, ones)}
    lists = {name: pa.ListArray.from_arrays([*range(0, ROWS + 1, 10)], pa.array(each)) for name, each in padded.items()}
    np.savez(tmp_path / "a.npz", **padded)
    np.savez(tmp_path / "envs.npz", **{name: each.reshape(-1, 10) for name, each in padded.items()})
    for source in (pa.table(padded), pa.table(lists), tmp_path / "a.npz"):
        refused("mask is 0, and .* leave this row out, .*columns={'mask': None}", source)
    refused("row 123: mask is 0 in env 4, and ", tmp_path / "envs.npz")
    images = table.append_column("mask", pa.array([b"png"] * ROWS))
    results = [
        on_table(source) for source in (table, images, *(table.append_column("mask", [m]) for m in (ones, ones == 1)))
    ]
    results.append(on_table(pa.table(padded), columns={"mask": None}))
    assert all(each.select(["advantages", "returns"]).equals(results[0].select([-2, -1])) for each in results)
    refused("the column of mask holds binary", images, columns={"mask": "mask"})


def test_missing_numbers_of_envs():
    """Arrow would read them as 0."""
    whole = {name: [[0, 0], [0, 0], [1, 1]] for name in ("rewards", "values", "terminated", "next_values", "obs")}
    for name in whole:
        for kind in (pa.int32(), pa.float64()):
            rows = whole | {name: [[0, 0], [0, None], [1, 1]]}
            lists = {each: pa.array(column, pa.list_(kind, 2)) for each, column in rows.items()}
            tensor = pa.fixed_shape_tensor(kind, [2])
            table = pa.table({each: pa.ExtensionArray.from_storage(tensor, array) for each, array in lists.items()})
            if name == "obs":
                critic = Critic(lambda batch: batch["obs"][:, 0], ["obs"])
                refused("row 0: the critic cannot read obs of the 3 rows .*a number is missing", table, values=critic)
                continue
            refused(f"row 1: {name} is missing in env 1", table, **ONES)
            if name == "rewards":
                refused("row 1: success is missing in env 1", table, **(ONES | {"rewards": "rewards:0:1"}))


def test_values_behind_steps(tmp_path):
    """A number that is not finite is an error where it is read. Behind an end for good none is."""
    np.savez(tmp_path / "a.npz", rewards=[1.0, 1], values=[0.0, 0], terminated=[False, False], last_values=np.inf)
    refused("row 1: values is inf; expected a finite number in the state after this step", tmp_path / "a.npz")
    ends = {"terminated": [[False, True]], "last_values": [2.0, np.nan]}
    np.savez(tmp_path / "a.npz", rewards=[[1.0, 1]], values=[[0.0, 0]], **ends)
    assert compute(tmp_path / "a.npz", **ONES).mean == 2.0
    open_ends = {"rewards": [1.0] * 3, "values": [1, 2, 3, 4], "terminated": [False] * 3}  # no integer is NaN
    np.savez(tmp_path / "b.npz", truncated=[False, True, False], **open_ends)
    refused("row 1: the episode is truncated, and there is no value of the state after it", tmp_path / "b.npz")
    np.savez(tmp_path / "b.npz", **open_ends)
    assert compute(tmp_path / "b.npz", **ONES).returns_mean == 6.0
    unread = rows(terminated=[False, False, True], next_values=[0.0, 0.0, np.nan])  # behind an end for good
    assert compute(unread, **ONES)["advantages"].to_pylist() == [3.0, 2.0, 1.0]
    late = rows(truncated=[False, False, True], next_values=[0.0, 0.0, 9.0])  # ends="terminated" counts, not its V'
    assert compute(late, **(ENDS | ONES))["advantages"].to_pylist() == [3.0, 2.0, 1.0]
    within = unread.set_column(1, "next_values", pa.array([0.0, np.inf, 0.0]))
    refused("row 1: next_values is inf; expected a finite number$", within)


@pytest.mark.parametrize(
    ("kind", "first"), [("u1", 240), ("i1", 110), ("u8", 2**64 - 16), ("u8", 2**63 - 10), ("i8", 2**62)]
)
def test_steps_that_wrap_around(tmp_path, kind, first):
    begin, end = np.iinfo(kind).min, np.iinfo(kind).max
    numbers = [number if number <= end else begin + number - end - 1 for number in range(first, first + 20)]
    source = write(rows(episode=[0] * 20, step=np.array(numbers, kind)), tmp_path / "a.parquet", 7)
    for most in (1, 20):
        if first + 20 <= end:
            assert compute(source, overwrite=True, memory=limit(most), **ENDS).episodes == 1
        else:
            refused(r"step -?\d+ is followed by step -?\d+:", source, memory=limit(most), **ENDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("episode,rewards,rewards,values\n0,1,2,3\n", "a.csv: there are 2 columns 'rewards' for rewards; expected one"),
        ("episode,rewards,values\n0,1,2\n0,1\n0,1,2\n", "parse error: Row #3: .*Expected 3 columns, got 2: 0,1"),
        ("episode,rewards,values\n0,1,2\n0,1,2,3\n0,1,2\n", "a.csv cannot be read: .*Row #3: .*got 4: 0,1,2,3"),
    ],
)
def test_text(tmp_path, text, message):
    """Two columns of one name, and rows that are cut."""
    (tmp_path / "a.csv").write_text(text)
    refused(message, tmp_path / "a.csv", **ENDS)


def test_places_of_results(tmp_path, recorded):
    table = recorded.table("episode", "rewards", "values")
    for number in range(2):
        write(table, tmp_path / f"{number}.parquet", 1000)
    out = tmp_path / "out.parquet"
    for source, given, error, message in (
        ("*.parquet", (), ValueError, "the source is 2 paths: say where to write the results, by out"),
        ("*.parquet", (out,), ValueError, r"out\.parquet belongs to the source"),
        (".", (out,), ValueError, r"out\.parquet belongs to the source, and the next run would read it as data"),
        (".", (tmp_path / "a" / ".." / "out.parquet",), ValueError, r"out\.parquet belongs to the source"),
        ("0*.parquet", (), ValueError, r"0\.advantages\.parquet belongs to the source"),
        ("0.parquet", (tmp_path / "none" / "a.parquet",), OSError, "cannot write .*: there is no folder .*none"),
    ):
        refused(message, str(tmp_path / source), *given, error=error, **ENDS)
    assert len(list(tmp_path.iterdir())) == 2
    compute(tmp_path / "0.parquet", out, **ENDS)  # a file is all of the source


def test_ways_out(tmp_path, ran):
    """Of a step that was dropped, a column named dones, and swapped names."""
    dropped = rows(episode=[0] * 3, step=[0, 1, 3])
    refused(r"step 1 is followed by step 3: .*no column be the step: columns=.*None}", dropped, **ENDS)
    assert len(compute(dropped, columns={"step": None}, **ENDS)) == 3
    in_turn = rows(env=[0, 1] * 3, step=[0, 0, 1, 1, 0, 0], terminated=[False] * 2 + [True] * 4)
    refused("step 0 is followed by step 0: name a column of episode, .*no column be the step: columns=.*None}", in_turn)
    assert compute(in_turn, columns={"step": None}, **ONES)["advantages"].to_pylist() == [2, 2, 1, 1, 1, 1]
    refused(r"such as columns={'done': 'dones'}", rows(episode=[0], dones=[True]))
    swapped = r"unknown role reward; .*do you mean columns={'rewards': 'reward'}\?"
    refused(swapped, rows(reward=[0]), columns={"reward": "rewards"}, error=ValueError, **ENDS)
    source = write(dropped, tmp_path / "a.parquet", 1)
    ran("compute", source, "--ends", "terminated", "--column", "step=")
    for option in (["compute", source, "--end", "terminated"], ["--versio"]):
        ran(*option, status=2)
    (tmp_path / "roll.pt").write_bytes(b"PK\3\4 of torch")
    assert "roll.pt" in ran("diagnose", tmp_path / "roll.pt", status=2).err


@pytest.mark.parametrize("name", [b"x\xff.parquet", b"run:1.parquet", b"s3:1.parquet"])
def test_names_of_files(tmp_path, recorded, name, monkeypatch):
    """A name need not be UTF-8, and a colon makes no URL of it."""
    monkeypatch.chdir(tmp_path)
    try:
        source = write(recorded.table(), tmp_path / "a.parquet", 1000).rename(os.fsdecode(name))
    except OSError:
        pytest.skip("this file system has no such names")
    for path in (source, f"./{source}", os.fsdecode(name)):
        compute(path, "out.parquet", overwrite=True, progress=False)
        assert_same_bits(read(tmp_path / "out.parquet"), recorded.result)


def test_arrays_beside_tables_are_no_data(tmp_path, recorded):
    runs = tmp_path / "runs"
    runs.mkdir()
    write(recorded.table("episode", "step", "rewards"), runs / "a.parquet", 1000)
    np.save(runs / "values.npy", recorded.values)
    got = computed(runs, tmp_path / "out.parquet", values=runs / "values.npy", **ENDS)
    assert_same_bits(got, fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0))


def test_exact_casts(tmp_path, recorded):
    """Decimals that are integers name episodes and steps; float16 numbers are float32 ones."""
    integers = {
        name: [decimal.Decimal(f"{number}.0") for number in getattr(recorded, name)] for name in ("episode", "step")
    }
    half = {name: getattr(recorded, name).astype(np.float16) for name in ("rewards", "values", "next_values")}
    source = write(recorded.table(**integers, **half), tmp_path / "a.parquet", 1000)
    wide = {name: array.astype(np.float32) for name, array in half.items()}
    expected = compute(recorded.table(**wide), progress=False)["advantages"].to_pylist()
    assert computed(source, tmp_path / "out.parquet")["advantages"].to_pylist() == expected
    refused(r"step holds decimal.*; expected integers", recorded.table(step=[decimal.Decimal("0.5")] * ROWS))


def test_decimals_are_the_nearest_floats(tmp_path):
    """Also where another file has float32. pyarrow makes 0.30000000000000004 of 0.3, and float32 beside float32."""
    numbers = np.arange(-200, 200) / 10
    table = rows(episode=np.arange(400))
    decimals = table.set_column(1, "rewards", pa.array([decimal.Decimal(str(number)) for number in numbers]))
    write(decimals, tmp_path / "a.parquet", 99)
    single = table.set_column(1, "rewards", table["rewards"].cast(pa.float32()))
    write(single.set_column(0, "episode", pa.array(np.arange(400, 800))), tmp_path / "b.parquet", 99)
    for got in (on_table(decimals, ends="terminated"), computed(tmp_path, tmp_path.with_name("out.parquet"), **ENDS)):
        assert np.array_equal(got["returns"].to_numpy()[:400], numbers)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_decimals_beside_integers(tmp_path, kind):
    table = rows(episode=np.arange(4))
    rewards = pa.array([decimal.Decimal("0.1")] * 4), pa.array([7] * 4, kind)
    for number, column in enumerate(rewards):
        write(table.set_column(1, "rewards", column), tmp_path / f"{number}.parquet", 99)
    got = computed(tmp_path, tmp_path.with_name("out.parquet"), episode_is="file", **ENDS)
    assert got["returns"].to_pylist() == [0.1] * 4 + [7.0] * 4
    for number, values in enumerate((pa.array([decimal.Decimal("0.1")] * 2), pa.array([7] * 2, kind))):  # of Minari
        flags = {"terminations": [False] * 2, "truncations": [True] * 2}
        (folder := tmp_path / "dataset" / "data" / str(number)).mkdir(parents=True)
        write(pa.table({"rewards": [0.0] * 2, "values": values, **flags}), folder / "a.parquet", 9)
    (folder.parent / "metadata.json").write_text('{"data_format": "parquet"}')
    assert computed(folder.parents[1], tmp_path.with_name("b.parquet"), **ONES)["returns"].to_pylist() == [0.1, 7.0]


def test_types_that_few_functions_know(tmp_path):
    """Labels of 16 bytes; Parquet holds no union, and Arrow no dictionary that begins empty."""
    table = rows(episode=[0, 0, 1, 1], step=[0, 1, 0, 1])
    task = pa.array([b"a" * 16, b"b" * 16] * 2, pa.binary(16))
    task = pa.ExtensionArray.from_storage(pa.opaque(task.type, "id", "us"), task)
    per = {"label_quantile": 0.5, "label_per": "task", **ENDS}
    category = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int8()), pa.array([False, True]))  # of pandas
    both = table.append_column("task", task).append_column("category", category)
    labelled = compute(both, into=tmp_path / "a.arrow", **per)
    assert labelled.threshold.keys() == {str(b"a" * 16), str(b"b" * 16)}
    assert read(tmp_path / "a.arrow")["task"].type == task.type
    assert read(tmp_path / "a.arrow")["category"].to_pylist() == [False, True] * 2
    text = pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"b", b"\xff", b"d"]).buffers())
    latin = table.append_column("latin", text)
    message = r"the column of {} holds text that is not UTF-8: .*Invalid UTF8 sequence at string index 2"
    for source in (latin, write(latin, tmp_path / "latin.parquet", 3)):
        refused(message.format("label_per"), source, **{**per, "label_per": "latin"})
        refused(message.format("episode"), source, columns={"episode": "latin"}, **ENDS)
    union = pa.UnionArray.from_sparse(pa.array([0] * 4, pa.int8()), [pa.array(range(4))])
    unions = table.append_column("union", union)
    refused("label_per holds sparse_union.*; expected integers", unions, **{**per, "label_per": "union"})
    refused(
        r"b\.parquet must end in \.arrow, because Unhandled type .*union", unions, into=tmp_path / "b.parquet", **ENDS
    )
    compute(unions, into=tmp_path / "b.arrow", **ENDS)
    assert read(tmp_path / "b.arrow")["union"].to_pylist() == [0, 1, 2, 3]
    late = pa.chunked_array([pa.array(each, pa.string()).dictionary_encode() for each in ([None] * 2, ["a", "b"])])
    grows = {"into": tmp_path / "c.arrow", "memory": limit(2), **ENDS}
    refused(r"c\.arrow must end in \.parquet, because Dictionary", table.append_column("late", late), **grows)
    kinds = (pa.decimal256(50, 2), pa.int64())  # duckdb, which sorts the rows, has no such decimals
    long, short = (table.set_column(1, "step", pa.array([1, 0, 1, 0]).cast(kind)) for kind in kinds)
    assert compute(long, **ENDS)["returns"].equals(compute(short, **ENDS)["returns"])


def test_messages_of_types_of_any_length(tmp_path):
    """As of a data frame that pandas wrote to JSON, where each column is an object."""
    columns = {name: {str(row): 1.0 for row in range(999)} for name in ("episode", "rewards", "values")}
    (tmp_path / "a.json").write_text(json.dumps(columns))
    refused(r"the column of episode holds struct<0: double, .{,4000} 998: double>; exp", tmp_path / "a.json", **ENDS)


def test_names_that_begin_again_in_one_file(tmp_path):
    """Two collectors, one after the other: five episodes, and three names."""
    table = rows(episode=[0, 0, 1, 1, 0, 0, 1, 1, 2, 2])
    for source in (table, write(table, tmp_path / "a.parquet", 3)):
        for memory in (limit(1), "1GB"):
            message = "nothing says whether they are one episode, or several of the same"
            refused(message, source, memory=memory, **ENDS)
    flagged = table.append_column("terminated", pa.array([False, True] * 5))
    assert compute(flagged, **ONES)["advantages"].to_pylist() == [2.0, 1.0] * 5
    for kind in (pa.float64(), pa.decimal128(21, 0)):  # in which Python has one hash for -1 and -2
        table = rows(episode=pa.array([-1, -1, -2, -2]).cast(kind))
        for got in (
            compute(table, ends="terminated", **ONES),
            on_table(table, ends="terminated", gae_lambda=1, gamma=1),
        ):
            assert got["advantages"].to_pylist() == [2.0, 1.0] * 2


def test_done_beside_another_flag():
    """It is either end: where the flag is not set, the other end is."""
    flags = {"terminated": [False, False, False, True], "truncated": [False, True, False, False]}
    for name in flags:
        table = rows(next_values=[0.0, 7.0, 0.0, 7.0], done=[False, True, False, True], **{name: flags[name]})
        for results in (compute(table, **ONES), on_table(table, gamma=1.0, gae_lambda=1.0)):
            assert results["advantages"].to_pylist() == [9.0, 8.0, 2.0, 1.0]
    open_end = rows(terminated=flags["terminated"], done=[False, True, False, True])
    refused("row 1: the episode is truncated, and there is no value of the state after it", open_end)


def test_what_an_error_names(tmp_path):
    """A column of success that holds text, flags for all envs, and what keeps a run from going on."""
    success = pa.table({"episode": [0], "ok": ["yes"], "values": [0.0]})
    refused("the column of success holds string; expected bool", success, rewards="ok:-1:9", **ENDS)
    np.savez(tmp_path / "a.npz", rewards=np.ones((3, 2)), values=np.zeros((3, 2)), terminated=np.zeros(3, bool))
    message = r"a\.npz: a row of terminated has the shape \(\), but a row of rewards has \(2,\)"
    refused(message, tmp_path / "a.npz", **ENDS)
    source = write(rows(episode=[0]), tmp_path / "a.parquet", 1)
    compute(source, **ENDS)
    refused("exists already with results of other options or data", source, resume=True, gamma=0.5, **ENDS)


def test_files_that_are_not_replaced(tmp_path, monkeypatch):
    """Those of the source, by whatever path, also if fastgae wrote them, and pictures."""
    monkeypatch.chdir(tmp_path)
    write(rows(episode=[0, 0, 1]), tmp_path / "a.parquet", 3)
    compute("a.parquet", into="b.parquet", **ENDS)
    (tmp_path / "c.png").write_bytes((tmp_path / "a.parquet").read_bytes())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    source, is_there = r"b\.parquet is a file of the source: pass another path", r"c\.png exists already: pass"
    for given, options, message in (
        (("b.parquet", tmp_path / "b.parquet"), {"overwrite": True}, source),
        (("a.parquet", tmp_path / "b.parquet"), {"overwrite": True, "values": "b.parquet"}, source),
        (("a.parquet", "d.parquet"), {"plot": "c.png"}, is_there),
        (("c.png", "d.parquet"), {"plot": tmp_path / "c.png", "overwrite": True}, is_there),
    ):
        refused(message, *given, **options, **ENDS)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_values_whose_rows_cannot_be_found(tmp_path):
    """The source has no names of rows, and the values come in an order of their own."""
    flags = write(rows(terminated=[False, True, True]), tmp_path / "flags.parquet", 3)
    values = write(pa.table({"step": [1, 0, 0], "values": np.zeros(3)}), tmp_path / "v.parquet", 3)
    refused("v.parquet has step beside 'values', and the source has no names of rows", flags, values=str(values))
    named = write(rows(episode=[0, 0, 1], step=[0, 1, 0]), tmp_path / "named.parquet", 3)
    keys = {"episode": [1, 0, 0], "step": [0, 0, 1]}
    write(pa.table({**keys, "values": np.array([3, 1, 2], np.float16)}), tmp_path / "v.parquet", 3)
    got = computed(named, tmp_path / "out.parquet", values=str(values), **ENDS, gamma=1.0, gae_lambda=1.0)
    assert got["advantages"].to_pylist() == [1.0, -1.0, -2.0]


def test_names_of_columns_that_are_taken(monkeypatch):
    table = rows(episode=[0, 0, 1], step=[0, 1, 0])
    with pytest.raises(ValueError, match="the source has a column 'advantages', but a column of results has the same"):
        on_table(on_table(table, ends="terminated"), ends="terminated")
    refused("the source has a column '__row__', a name that fastgae needs", rows(episode=[0], __row__=[0]), **ENDS)
    twice = table.append_column("x", pa.array([0.0] * 3)).append_column("x", pa.array([1.0] * 3))
    for most in (2, 3):
        monkeypatch.setattr("fastgae.data.tables.SLICE", most)
        assert len(compute(twice, **ENDS)) == len(on_table(twice, ends="terminated")) == 3
    refused("there are 2 columns 'x'; expected one", twice, values=lambda batch: batch["x"], **ENDS)


def test_a_name_for_rows_of_several_envs(tmp_path):
    ones = np.ones((3, 2))
    arrays = {"rewards": ones, "values": 0 * ones, "terminated": ones > 1, "run": np.arange(3)}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez(tmp_path / "b.npz", **arrays, episode_ends=[2, 3])
    message = "a row has a number for each of several envs, so no column can be %s: end episodes by flags"
    for role in ("episode", "step"):
        refused(message % role, tmp_path / "a.npz", columns={role: "run"}, **ENDS)
    refused(message % "episode", tmp_path / "b.npz", **ENDS)
    assert compute(tmp_path / "b.npz", columns={"episode": None}, **ENDS).episodes == 2
