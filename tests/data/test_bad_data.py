"""Data that cannot be computed: an error that names the file, the episode and the step, and nothing left behind."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute, on_table, sorting, walk

from .recorded import limit, read, write

# A change of one row of one column, and what the error says of it.
AT = 1234
FAULTS = {
    "rewards": (np.nan, "rewards is NaN"),
    "values": (np.nan, "values is NaN"),
    "next_values": (np.inf, "next_values is inf; expected a finite number"),
    "terminated": (2.0, "terminated is 2.0; expected 0 or 1"),
    "truncated": (None, "truncated is missing"),
    "step": (10**6, "is followed by step"),
}


def changed(column, row, value):
    numbers = [float(each) for each in column] if column.dtype != np.int64 else column.tolist()
    return pa.array([*numbers[:row], value, *numbers[row + 1 :]])


@pytest.mark.parametrize("role", FAULTS)
@pytest.mark.parametrize("rows", [100, 10**6])
def test_a_fault_of_one_row(tmp_path, recorded, role, rows):
    value, fault = FAULTS[role]
    source = write(recorded.table(**{role: changed(getattr(recorded, role), AT, value)}), tmp_path / "a.parquet", 100)
    with pytest.raises(DataError) as caught:
        compute(source, memory=limit(rows), progress=False)
    message = str(caught.value)
    assert message.startswith(f"{source}: episode {recorded.episode[AT]}, step ")
    assert fault in message
    if role != "step":
        assert f"step {recorded.step[AT]}, row {AT}: " in message
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("scattered", [False, True])
def test_a_doubled_and_a_missing_step(tmp_path, recorded, scattered):
    rows = np.arange(len(recorded.rewards))
    for wrong in (np.delete(rows, AT), np.insert(rows, AT, AT)):
        order = np.random.default_rng(0).permutation(wrong) if scattered else wrong
        source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)
        with pytest.raises(
            DataError, match=rf"a\.parquet: episode {recorded.episode[AT]}, step \d+, row .*is followed by"
        ):
            compute(source, memory=limit(500), progress=False)
        assert list(tmp_path.iterdir()) == [source]


def test_an_end_without_a_next_value(tmp_path, recorded):
    names = ("episode", "step", "rewards", "values", "terminated")
    nothing = pa.array(np.zeros(len(recorded.rewards), bool))
    source = write(recorded.table(*names).append_column("truncated", nothing), tmp_path / "a.parquet", 100)
    with pytest.raises(
        DataError, match=r"row \d+: the episode ends without a flag, .*next_values.*ends=\"terminated\""
    ):
        compute(source, progress=False)
    source = write(recorded.table(*names, "truncated"), tmp_path / "a.parquet", 100)
    with pytest.raises(DataError, match=r"row \d+: the episode is truncated, and there is no value"):
        compute(source, progress=False)


def test_columns(tmp_path, recorded):
    source = write(recorded.table("episode", "rewards", "values"), tmp_path / "a.parquet", 100)
    for arguments, message in (
        ({}, "nothing says which episodes ended for good"),
        ({"columns": {"rewards": "reward"}}, "no column 'reward' for rewards; there are episode, rewards, values"),
        ({"columns": {"reward": "rewards"}}, "columns: unknown role reward; the roles are file, env, episode"),
        ({"ends": "truncated"}, 'ends must be "terminated" or None'),
        ({"format": "csv"}, "format must be"),
        ({"normalize": "per_env"}, "normalize must be"),
        ({"memory": "much", "ends": "terminated"}, "memory must be an amount of memory such as 256MB, got 'much'"),
        ({"gamma": 1.5}, "gamma"),
    ):
        with pytest.raises(ValueError, match=message):
            compute(source, progress=False, **arguments)
    done = pa.table({"done": recorded.last, "rewards": recorded.rewards, "values": recorded.values})
    with pytest.raises(DataError, match="done may be a time limit"):
        compute(write(done, tmp_path / "b.parquet", 100), progress=False)
    for names in (pa.array(recorded.rewards), pa.array([b"name"] * 3000), pa.array([[1]] * 3000)):
        named = write(recorded.table(episode=names), tmp_path / "c.parquet", 100)
        with pytest.raises(DataError, match=r"c.parquet: .*episode holds .*; expected integers"):
            compute(named, progress=False)
    twice = recorded.table().append_column("rewards", pa.array(recorded.rewards))
    with pytest.raises(DataError, match=r"c.parquet: there are 2 columns 'rewards' for rewards; expected one"):
        compute(write(twice, tmp_path / "c.parquet", 100), progress=False)
    text = recorded.table("episode", "values", "terminated").append_column("rewards", pa.array(["1"] * 3000))
    with pytest.raises(DataError, match="the column of rewards holds string; expected float32"):
        compute(write(text, tmp_path / "c.parquet", 100), progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet", "c.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("rows", [100, 10**6])
def test_files_of_other_columns(tmp_path, recorded, suffix, rows):
    first = write(recorded.table().slice(0, 1000), tmp_path / f"a{suffix}", 100)
    rest = recorded.table().slice(1000)
    second = write(rest.drop_columns("next_values"), tmp_path / f"b{suffix}", 100)
    with pytest.raises(DataError, match=rf"b{suffix} has no column 'next_values', but .*a{suffix} has one"):
        compute([first, second], memory=limit(rows), progress=False)
    at = rest.schema.get_field_index("rewards")
    write(rest.set_column(at, "rewards", rest["rewards"].cast(pa.string())), second, 100)
    message = rf"b{suffix} and .*a{suffix} have different columns: .*float vs string"
    with pytest.raises(DataError, match=message):
        compute([first, second], tmp_path / "out.arrow", memory=limit(rows), progress=False)
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_sources(tmp_path, recorded):
    with pytest.raises(DataError, match=r"nothing\.parquet' does not exist"):
        compute(tmp_path / "nothing.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no file of a known format"):
        compute(tmp_path / "empty")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"broken\.parquet cannot be read"):
        compute(tmp_path / "broken.parquet")
    with (
        pa.OSFile(str(tmp_path / "stream.arrow"), "wb") as file,
        pa.ipc.new_stream(file, recorded.table().schema) as out,
    ):
        out.write_table(recorded.table())
    stream = (tmp_path / "stream.arrow").read_bytes()
    (tmp_path / "stream.arrow").write_bytes(stream[:-8])  # as a killed writer leaves it: whole batches, and no end
    with pytest.raises(DataError, match=r"stream\.arrow cannot be read: this Arrow stream has no end; it was not"):
        compute(tmp_path / "stream.arrow")


def test_results_that_could_be_taken_for_data(tmp_path, recorded):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    source = write(recorded.table(), tmp_path / "runs" / "one" / "a.parquet", 1000)
    for out in (tmp_path / "runs" / "out.parquet", tmp_path / "runs" / "one" / ".." / "out.parquet"):
        with pytest.raises(
            DataError, match=r"out\.parquet belongs to the source, and the next run would read it as data"
        ):
            compute(tmp_path / "runs", out, progress=False)
    compute(source, source.with_name("out.parquet"), progress=False)  # a file is all of the source
    assert sorted(path.name for path in tmp_path.rglob("*.parquet*")) == ["a.parquet", "out.parquet"]

    table = recorded.table().rename_columns(["advantages", *recorded.table().column_names[1:]])
    source = write(table, tmp_path / "b.parquet", 1000)
    with pytest.raises(
        DataError, match="the source has a column 'advantages', but a column of results has the same name"
    ):
        compute(source, columns={"episode": "advantages"}, progress=False)
    assert not list(tmp_path.glob("b.*.*"))


def test_a_file_that_changes_on_the_way(tmp_path, recorded, monkeypatch):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)

    def compute_then_change(*arguments):
        write(recorded.table(rewards=recorded.rewards + 1), source, 100)
        return kept(*arguments)

    kept = walk.compute_run
    monkeypatch.setattr(walk, "compute_run", compute_then_change)
    with pytest.raises(DataError, match=r"a\.parquet changed while it was read"):
        compute(source, memory=limit(200), progress=False)
    assert list(tmp_path.iterdir()) == [source]
    assert read(source).num_rows == len(recorded.rewards)


def test_a_file_that_vanishes_while_rows_are_sorted(tmp_path, recorded, monkeypatch):
    table = recorded.table().take(np.random.default_rng(0).permutation(len(recorded.rewards)))
    first, second = (write(table.slice(begin, 1500), tmp_path / f"{begin}.parquet", 100) for begin in (0, 1500))
    sort = walk.sort

    def vanished(*arguments):
        second.unlink()
        return sort(*arguments)

    monkeypatch.setattr(walk, "sort", vanished)
    with pytest.raises(DataError, match=r"^.*1500\.parquet vanished while it was read$"):
        compute([first, second], tmp_path / "out.parquet", memory=limit(500), progress=False)
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("call", [1, 3, 9])
def test_a_file_that_changes_while_it_is_sorted(tmp_path, recorded, monkeypatch, call):
    """duckdb makes a text of every error in what it reads."""
    order = np.random.default_rng(0).permutation(len(recorded.rewards))
    source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)

    def changing(*arguments):
        for number, batch in enumerate(numbered(*arguments)):
            if number == call:
                write(recorded.table(rewards=recorded.rewards + 1), source, 100)
            yield batch

    numbered = sorting._numbered
    monkeypatch.setattr(sorting, "_numbered", changing)
    with pytest.raises(DataError, match=r"a\.parquet changed while it was read"):
        compute(source, memory=limit(200), progress=False)
    assert list(tmp_path.iterdir()) == [source]


def test_arguments_by_other_names():
    for function in (compute, on_table):
        for misnamed, advice in {
            "lambda_": "pass gae_lambda$",
            "gae_lamda": r"do you mean gae_lambda\?$",
            "reward": "pass columns={'rewards': NAME}$",
            "timeouts": "pass columns={'truncated': NAME}$",
            "done": "pass columns={'terminated': NAME}, the flags that env.step returned",
            "episode": "pass columns={'episode': NAME}$",
            "vf_preds": "pass columns={'values': NAME}$",
            "device": "it takes (source|table), ",
        }.items():
            message = rf"^{function.__name__}\(\) got an unexpected keyword argument '{misnamed}': {advice}"
            with pytest.raises(TypeError, match=message):
                function("a.parquet", **{misnamed: "x"})
        with pytest.raises(
            TypeError, match=r"takes \d positional arguments? \((source, out|table)\), and 4 are given: pass"
        ):
            function(*"abcd")
