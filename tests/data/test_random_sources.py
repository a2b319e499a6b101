"""Sources drawn at random: the same bits as one call of fastgae.gae; and broken ones: an error that names the file."""

import json
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import compute

from .recorded import limit, names, read, refused, write

CASES = 60
TEXT = ("csv", "jsonl")  # no float32
TABLES = ("parquet", "arrow", "stream", *TEXT)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float32, np.float64)


class Drawn:
    """Random episodes, and the answer for them."""

    def __init__(self, rng, form):
        keeps_final = form.startswith("minari")  # the state behind an episode, and no next values
        floats = (np.float64,) if form in TEXT else FLOATS
        self.rng = rng
        lengths = rng.choice([1, 2, 3, 17, 60, 100], rng.integers(1, 12))
        ends = np.cumsum(lengths)
        self.lengths, self.rows = lengths, int(ends[-1])
        self.first = ends - lengths
        self.last = np.isin(np.arange(self.rows), ends - 1)
        self.episode = np.repeat(np.arange(len(lengths)), lengths)
        self.step = np.arange(self.rows) - np.repeat(self.first, lengths)
        self.rewards = (rng.normal(size=self.rows) * 50).astype(rng.choice([*floats, *floats, *INTEGERS[:4]]))
        kind = rng.choice(floats)
        self.values, self.next_values = rng.normal(size=(2, self.rows)).astype(kind)
        self.terminated = self.last & (rng.random(self.rows) < 0.5)
        self.truncated = self.last & ~self.terminated
        self.ends = None if keeps_final or rng.random() < 0.7 else "terminated"
        if self.ends:
            self.answer = fastgae.gae(self.rewards, self.values, self.last, last_values=0.0)
        elif keeps_final:
            following = {"last_values": 0.0, "final_values": self.next_values}
            self.answer = fastgae.gae(self.rewards, self.values, self.terminated, self.truncated, **following)
        else:
            given = (self.rewards, self.values, self.terminated, self.truncated)
            self.answer = fastgae.gae(*given, next_values=self.next_values)

    def flags(self, name):
        return getattr(self, name).astype(self.rng.choice([bool, *FLOATS, *INTEGERS]))

    def states(self, name):
        """Return an array of the values of all states: T + 1 an episode."""
        return np.insert(self.values, self.first + self.lengths, self.next_values[self.last])

    def columns(self):
        names = {
            "text": pa.array([f"run {number}" for number in self.episode]),
            "large": pa.array([f"run {number}" for number in self.episode], pa.large_string()),
            "dictionary": pa.array([f"run {number}" for number in self.episode]).dictionary_encode(),
            "numbers": pa.array(self.episode.astype(self.rng.choice(INTEGERS))),
        }
        flags = {name: pa.array(self.flags(name)) for name in ("terminated", "truncated")}
        numbers = {name: pa.array(getattr(self, name)) for name in ("rewards", "values")}
        following = {} if self.ends else {"next_values": pa.array(self.next_values)}
        step = pa.array((self.step + self.rng.integers(20)).astype(self.rng.choice(INTEGERS)))
        return {"episode": names[self.rng.choice(list(names))], "step": step, **numbers, **flags, **following}


def by_polars(table, path, rows):
    pytest.importorskip("polars").from_arrow(table).write_parquet(path, row_group_size=rows)


def by_pandas(table, path, rows):
    pytest.importorskip("pandas")
    table.to_pandas().to_parquet(path, row_group_size=rows)


def by_duckdb(table, path, rows):
    pytest.importorskip("duckdb").from_arrow(table).write_parquet(str(path), row_group_size=rows)


def by_huggingface(table, path, rows):
    pytest.importorskip("datasets").Dataset(table).to_parquet(path, batch_size=rows)


# Each file of a source may have another writer, which has other types for the same columns.
WRITERS = (write, by_polars, by_pandas, by_duckdb, by_huggingface)


def in_files(drawn, folder, columns, suffix):
    """Write the columns into a few tables of a few rows to the group; scattered or not."""
    rng = drawn.rng
    order = rng.permutation(drawn.rows) if rng.random() < 0.3 else np.arange(drawn.rows)
    table = pa.table(columns).take(order)
    folder.mkdir(parents=True)
    bounds = np.unique([0, *rng.integers(1, drawn.rows + 1, rng.integers(0, 4)), drawn.rows])
    view = rng.random() < 0.3  # as polars writes text
    for number, (begin, end) in enumerate(pairwise(bounds)):
        part = table.slice(begin, end - begin)
        if view and pa.types.is_string(part.schema.field(0).type):
            part = part.set_column(0, part.field(0).name, part[0].cast(pa.string_view()))
        at = next((at for at, field in enumerate(part.schema) if pa.types.is_dictionary(field.type)), None)
        if at is not None:  # every file has a dictionary of its own
            part = part.set_column(at, part.field(at).name, part[at].cast(pa.string()).dictionary_encode())
        writer = WRITERS[rng.integers(len(WRITERS))] if suffix == ".parquet" else write
        writer(part, folder / f"{number}{suffix}", int(rng.choice([1, 7, 50, 10**6])))
    return order


def in_tables(drawn, folder, suffix):
    return {}, in_files(drawn, folder, drawn.columns(), suffix)


def huggingface(drawn, folder):
    order = in_files(drawn, folder, drawn.columns(), ".stream")
    files = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    write(pa.table(drawn.columns()), folder / "cache-0123.arrow", 10)  # what Hugging Face computed from them
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": path.name} for path in files]}))
    return {}, order


def one_per_file(drawn, folder):
    columns = drawn.columns()
    del columns["episode"]
    suffix = drawn.rng.choice([".parquet", ".arrow"])
    for number, (first, length) in enumerate(zip(drawn.first, drawn.lengths, strict=True)):
        file = folder / f"worker={number // 3:02}" / f"{number % 3}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        write(pa.table(columns).slice(first, length), file, int(drawn.rng.choice([1, 7, 10**6])))
    return {"episode_is": "file"}, np.arange(drawn.rows)


def lists(drawn, folder):
    """A row for each episode. Flags are lists, or for the whole episode."""
    parts = [slice(first, first + length) for first, length in zip(drawn.first, drawn.lengths, strict=True)]
    columns = {}
    for name, column in drawn.columns().items():
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        whole = name == "episode" or (name in ("terminated", "truncated") and drawn.rng.random() < 0.5)
        rows = [column[part] for part in parts]
        if whole:
            columns[name] = pa.concat_arrays([row[-1:] for row in rows])
        else:
            columns[name] = pa.array([row.to_pylist() for row in rows], pa.list_(column.type))
    folder.mkdir()
    table, half = pa.table(columns), len(parts) // 2
    suffix = drawn.rng.choice([".parquet", ".arrow"])
    for number, rows in enumerate([table.slice(0, half), table.slice(half)]):
        if len(rows):
            write(rows, folder / f"{number}{suffix}", int(drawn.rng.choice([1, 3, 10**6])))
    return {}, np.arange(drawn.rows)


def hdf5_file(path, arrays, chunks=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=chunks)


def robomimic(drawn, folder):
    arrays = {name: drawn.flags(name) for name in ("terminated", "truncated")}
    arrays |= {name: getattr(drawn, name) for name in ("rewards", "values")}
    arrays |= {} if drawn.ends else {"next_values": drawn.next_values}
    parts = enumerate(zip(drawn.first, drawn.first + drawn.lengths, strict=True))
    demos = {f"data/demo_{n}/{name}": array[a:b] for n, (a, b) in parts for name, array in arrays.items()}
    hdf5_file(folder / "a.hdf5", demos)
    return {"columns": {name: name for name in ("terminated", "truncated")}}, np.arange(drawn.rows)


def rllib(drawn, folder):
    names = {"episode": "eps_id", "step": "t", "terminated": "terminateds", "truncated": "truncateds"}
    names |= {"values": "vf_preds", "next_values": "behind"}
    columns = {names.get(role, role): column for role, column in drawn.columns().items()}
    more = {} if drawn.ends else {"columns": {"next_values": "behind"}}
    return more, in_files(drawn, folder, columns, ".parquet")


def lerobot(drawn, folder):
    columns = drawn.columns()
    columns["done"] = pa.array(drawn.last)
    del columns["terminated"]
    names = {"episode": "episode_index", "step": "frame_index", "rewards": "next.reward", "done": "next.done"}
    names |= {"truncated": "next.truncated"}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"total_frames": drawn.rows}))
    named = {names.get(role, role): column for role, column in columns.items()}
    order = in_files(drawn, folder / "data" / "chunk-000", named, ".parquet")
    return {}, order


def flat(drawn):
    arrays = {name: getattr(drawn, name) for name in ("rewards", "values")}
    if drawn.ends and drawn.rng.random() < 0.5:
        return {**arrays, "episode_ends": drawn.first + drawn.lengths}
    if drawn.ends:
        return {**arrays, "episode": drawn.episode}
    flags = {name: drawn.flags(name) for name in ("terminated", "truncated")}
    return {**arrays, **flags, "next_values": drawn.next_values}


def npz(drawn, folder):
    folder.mkdir()
    not_read = {"note": np.array([{"a": 1}], object), "name": np.array("text")}
    (np.savez if drawn.rng.random() < 0.5 else np.savez_compressed)(folder / "a.npz", **flat(drawn), **not_read)
    return {}, np.arange(drawn.rows)


def npy(drawn, folder):
    folder.mkdir()
    for name, array in flat(drawn).items():
        np.save(folder / f"{name}.npy", array)
    return {}, np.arange(drawn.rows)


def hdf5(drawn, folder):
    hdf5_file(folder / "a.hdf5", flat(drawn), chunks=True if drawn.rng.random() < 0.5 else None)
    return {}, np.arange(drawn.rows)


def minari_episodes(drawn):
    """Return the arrays of each episode."""
    terminated, truncated, states = drawn.flags("terminated"), drawn.flags("truncated"), drawn.states("values")
    for number, (first, length) in enumerate(zip(drawn.first, drawn.lengths, strict=True)):
        rows = slice(first, first + length)
        yield {
            "rewards": drawn.rewards[rows],
            "terminations": terminated[rows],
            "truncations": truncated[rows],
            "values": states[first + number : first + number + length + 1],
        }


def described(drawn, folder):
    said = {"data_format": "some", "total_episodes": len(drawn.lengths), "total_steps": drawn.rows}
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "metadata.json").write_text(json.dumps(said))


def minari_hdf5(drawn, folder):
    described(drawn, folder)
    episodes = enumerate(minari_episodes(drawn))
    arrays = {f"episode_{number}/{name}": array for number, each in episodes for name, array in each.items()}
    hdf5_file(folder / "data" / "main_data.hdf5", arrays, chunks=True)
    return {}, np.arange(drawn.rows)


def minari_arrow(drawn, folder):
    described(drawn, folder)
    suffix = drawn.rng.choice([".arrow", ".parquet"])
    for number, arrays in enumerate(minari_episodes(drawn)):
        padded = {name: np.append(array, array[-1:]) if name != "values" else array for name, array in arrays.items()}
        (folder / "data" / f"{number}").mkdir()
        write(pa.table(padded), folder / "data" / f"{number}" / f"part-0{suffix}", int(drawn.rng.choice([1, 7, 100])))
    return {}, np.arange(drawn.rows)


TABULAR = {kind: partial(in_tables, suffix=f".{kind}") for kind in TABLES} | {
    make.__name__: make for make in (huggingface, one_per_file, lists, rllib, lerobot)
}
# Only the first ones have a column of steps.
FORMATS = TABULAR | {make.__name__: make for make in (robomimic, npz, npy, hdf5, minari_hdf5, minari_arrow)}
CASE = [(seed, list(FORMATS)[seed % len(FORMATS)]) for seed in range(CASES)]


def drawn_source(seed, form, folder):
    """Write a random source; return it, the other arguments of compute, and the order of its rows."""
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng, form)
    more, order = FORMATS[form](drawn, folder)
    memory = limit(int(rng.choice([7, 40, 150, 10**6])))
    return drawn, {"ends": drawn.ends, "memory": memory, "progress": False, **more}, order


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("seed", "form"), [*CASE, *((seed, "parquet") for seed in range(CASES, CASES + 20))])
def test_same_bits(tmp_path, seed, form):
    drawn, arguments, order = drawn_source(seed, form, tmp_path / "source")
    before = contents(tmp_path)
    normalize = "global" if drawn.rng.random() < 0.3 else None
    out = tmp_path / f"out{drawn.rng.choice(['.parquet', '.arrow'])}"
    report = compute(tmp_path / "source", out, normalize=normalize, **arguments)
    got = read(out)
    advantages, returns = (got[name].to_numpy() for name in got.column_names[-2:])
    moments = fastgae.moments(drawn.answer.advantages)
    expected = moments.normalize(drawn.answer.advantages) if normalize else drawn.answer.advantages
    assert advantages.dtype == expected.dtype
    assert advantages.tobytes() == expected[order].tobytes()
    assert returns.tobytes() == drawn.answer.returns[order].tobytes()
    assert (report.steps, report.episodes, report.mean) == (drawn.rows, len(drawn.lengths), moments.mean)
    assert contents(tmp_path) == before | {out: out.read_bytes()}


def a_folder_instead(path, rng):
    path.unlink()
    path.mkdir()


def nothing_instead(path, rng):
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


DAMAGE = {
    "cut": lambda path, rng: path.write_bytes(path.read_bytes()[: int(rng.integers(1, path.stat().st_size))]),
    "overwritten": lambda path, rng: path.write_bytes(rng.bytes(path.stat().st_size)),
    "emptied": lambda path, rng: path.write_bytes(b""),
    "a folder instead": a_folder_instead,
    "nothing instead": nothing_instead,
}


@pytest.mark.parametrize(("seed", "form"), CASE[: len(FORMATS)])
def test_damaged_files(tmp_path, seed, form):
    for kind, damage in DAMAGE.items():
        folder = tmp_path / kind
        folder.mkdir()
        drawn, arguments, _ = drawn_source(seed, form, folder / "source")
        files = sorted(path for path in (folder / "source").rglob("*") if path.suffix not in ("", ".json"))
        damaged = drawn.rng.choice(files)
        damage(damaged, drawn.rng)
        before = contents(folder)
        source = damaged if form in TABLES else folder / "source"
        message = str(refused(None, source, folder / "out.parquet", **arguments))
        assert any(str(path) in message for path in (damaged, folder / "source")), kind
        assert contents(folder) == before
        assert names(folder) == ["source"]


def nan_reward(drawn, row):
    drawn.rewards = drawn.rewards.astype(np.float64)
    drawn.rewards[row] = np.nan
    return "rewards is NaN"


def infinite_value(drawn, row):
    drawn.values[row] = -np.inf
    return "values is -inf; expected a finite number"


def wrong_flag(drawn, row):
    drawn.ends = None
    drawn.flags = lambda name: np.where(np.arange(drawn.rows) == row, 3, getattr(drawn, name)).astype(np.int8)
    return "terminated is 3; expected 0 or 1|truncated is 3; expected 0 or 1"


def early_end(drawn, row):
    drawn.ends = None
    drawn.terminated = np.zeros(drawn.rows, bool)
    drawn.next_values = np.full(drawn.rows, np.nan)
    return "next_values is NaN|there is no value of the state after it"


def gap(drawn, row):
    drawn.step = drawn.step + (np.arange(drawn.rows) >= row)
    return "is followed by step"


FAULTS = {each.__name__: each for each in (nan_reward, infinite_value, wrong_flag, early_end, gap)}
FAULTY = [  # two of each format
    (seed, form, fault)
    for seed, form in CASE[: len(FORMATS)]
    for number, fault in enumerate(FAULTS)
    if (seed + number) % len(FAULTS) < 2 and (fault != "gap" or form in TABULAR)
]


@pytest.mark.parametrize(("seed", "form", "fault"), FAULTY)
def test_faults_of_rows(tmp_path, seed, form, fault):
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng, form)
    inside = np.flatnonzero(~drawn.last & (drawn.step > 0))
    message = FAULTS[fault](drawn, int(rng.choice(inside)))
    source = tmp_path / "source"
    more, _ = FORMATS[form](drawn, source)
    before = contents(tmp_path)
    given = {"ends": drawn.ends, "memory": limit(int(rng.choice([5, 40, 10**6]))), **more}
    found = str(refused(message, source, tmp_path / "out.parquet", **given))
    assert str(source) in found
    assert ", row " in found or ": row " in found
    assert contents(tmp_path) == before
    assert names(tmp_path) == ["source"]
