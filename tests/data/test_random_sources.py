"""Sources, estimators and values drawn at random: the same bits as one call on everything, also after Ctrl-C.

Broken sources are errors that name the file.
"""

import importlib.util
import json
import re
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import Critic, compute, walk

from .recorded import CHOICES, NEXT, answer, bits, limit, names, quantile_of, read, refused, stopped_after, write

CASES = 144
TEXT = ("csv", "jsonl")  # no float32
TABLES = ("parquet", "arrow", "stream", *TEXT)
RESULTS = ("advantages", "returns", "value_targets")
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float32, np.float64)


class Drawn:
    """Random episodes, and the answer for them."""

    def __init__(self, rng, form, values_from="column"):
        keeps_final = form.startswith(("minari", "states"))  # the state behind an episode, and no next values
        floats = (np.float64,) if form in TEXT else FLOATS
        self.rng = rng
        few = form in (*TEXT, "one_per_file")  # whose files have few types
        self.of_names = [*INTEGERS, *FLOATS, *([] if few else [np.float16, pa.decimal128(21, 2)])]
        lengths = rng.choice([1, 2, 3, 17, 60, 100], rng.integers(1, 12))
        ends = np.cumsum(lengths)
        self.lengths, self.rows = lengths, int(ends[-1])
        self.first = ends - lengths
        self.last = np.isin(np.arange(self.rows), ends - 1)
        self.episode = np.repeat(np.arange(len(lengths)), lengths)
        self.step = np.arange(self.rows) - np.repeat(self.first, lengths)
        self.rewards = (rng.normal(size=self.rows) * 50).astype(rng.choice([*floats, *floats, *INTEGERS[:4]]))
        kind = rng.choice(floats if values_from == "critic" else [*floats, *floats, *INTEGERS[:4]])
        self.values, self.next_values = (rng.normal(size=(2, self.rows)) * 20).astype(kind)
        if self.rewards.dtype.kind == "f" and rng.random() < 0.2:  # numbers that are often 0, with infinite sums
            self.rewards *= (rng.random(self.rows) < 0.5) * rng.choice([-1, 1], self.rows)
            self.rewards[rng.random(self.rows) < 0.02] = np.finfo(self.rewards.dtype).max
        self.terminated = self.last & (rng.random(self.rows) < 0.5)
        self.truncated = self.last & ~self.terminated
        self.ends = None if keeps_final or rng.random() < 0.7 else "terminated"
        self.values_from, self.keys, self.table, self.keeps_final = values_from, None, None, keeps_final
        # The column that a critic reads, or the column of values; a file of values has no column here.
        of_critic = "observations" if keeps_final else "v"
        self.valued = {"column": "values", "critic": of_critic}.get(values_from)
        if not (keeps_final or self.ends):
            self.next_values = self.next_values.astype(rng.choice(floats))
        else:  # as the next rows say
            self.next_values[~self.last] = np.append(self.values[1:], self.values[:1])[~self.last]

    def answer(self, choice):
        flags = (self.last, self.last & False) if self.ends else (self.terminated, self.truncated)
        numbers = (self.rewards, self.values, self.next_values)
        rewards, values, next_values = (each.astype(np.result_type(*numbers)) for each in numbers)
        return answer(choice, rewards, values, *flags, next_values)

    def flags(self, name):
        return getattr(self, name).astype(self.rng.choice([bool, *FLOATS, *INTEGERS]))

    def all_flags(self):
        return {name: self.flags(name) for name in ("terminated", "truncated")}

    def states(self):
        """Return the values of all states: T + 1 an episode."""
        return np.insert(self.values, self.first + self.lengths, self.next_values[self.last])

    def columns(self):
        text = pa.array([f"run {number}" for number in self.episode])
        names = {"text": text, "large": text.cast(pa.large_string()), "dictionary": text.dictionary_encode()}
        names["numbers"] = self.whole(self.episode)
        numbers = {name: pa.array(array) for name, array in (self.all_flags() | self.numbers()).items()}
        step = self.whole(self.step + self.rng.integers(20))
        return {"episode": names[self.rng.choice(list(names))], "step": step, **numbers}

    def whole(self, numbers):
        """Return whole numbers as a column of any type that holds them."""
        kind = self.rng.choice(self.of_names)
        return pa.array(numbers).cast(kind) if isinstance(kind, pa.DataType) else pa.array(numbers.astype(kind))

    def numbers(self):
        found = {"rewards": self.rewards} | ({} if self.ends or self.keeps_final else {"next_values": self.next_values})
        return found if self.valued is None else {**found, self.valued: self.values}


# Each file of a source may have another writer, which has other types for the same columns.
WRITERS = {
    "pyarrow": lambda _, table, path, rows: write(table, path, rows),
    "polars": lambda polars, table, path, rows: polars.from_arrow(table).write_parquet(path, row_group_size=rows),
    "pandas": lambda _, table, path, rows: table.to_pandas().to_parquet(path, row_group_size=rows),
    "duckdb": lambda duckdb, table, path, rows: duckdb.from_arrow(table).write_parquet(str(path), row_group_size=rows),
    "datasets": lambda datasets, table, path, rows: datasets.Dataset(table).to_parquet(path, batch_size=rows),
}
if int(pa.__version__.partition(".")[0]) < 25:  # which crashes where DuckDB reads views of texts
    del WRITERS["duckdb"]
INSTALLED = [library for library in WRITERS if importlib.util.find_spec(library)]
NAN = "(NaN|missing)" if "pandas" in INSTALLED else "NaN"  # pandas writes each NaN as a missing value


def in_files(drawn, folder, columns, suffix):
    """Write the columns into a few tables of a few rows to the group; scattered or not."""
    rng, drawn.keys = drawn.rng, dict(list(columns.items())[:2])
    order = rng.permutation(drawn.rows) if rng.random() < 0.3 else np.arange(drawn.rows)
    drawn.table = table = pa.table(columns).take(order)
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
        halves = pa.float16() in part.schema.types  # which few write
        library = rng.choice(INSTALLED) if suffix == ".parquet" and not halves else "pyarrow"
        rows = int(rng.choice([1, 7, 50, 10**6]))
        WRITERS[library](importlib.import_module(library), part, folder / f"{number}{suffix}", rows)
    return order


def in_tables(drawn, folder, suffix):
    return {}, in_files(drawn, folder, drawn.columns(), suffix)


def huggingface(drawn, folder):
    order = in_files(drawn, folder, drawn.columns(), ".stream")
    files = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    files = [path.rename(path.with_suffix(".arrow")) for path in files]
    write(pa.table(drawn.columns()), folder / "cache-0123.arrow", 10)  # what Hugging Face computed from them
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": path.name} for path in files]}))
    return {}, order


def one_per_file(drawn, folder):
    columns = drawn.columns()
    del columns["episode"]  # two files have the same name, and only the folder tells their episodes apart
    suffix = drawn.rng.choice([".parquet", ".arrow", ".hdf5"])
    for number, (first, length) in enumerate(zip(drawn.first, drawn.lengths, strict=True)):
        file = folder / f"worker={number // 3:02}" / f"{number % 3}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.table(columns).slice(first, length)
        if suffix == ".hdf5":
            hdf5_file(file, {name: np.asarray(rows[name]) for name in columns})
        else:
            write(rows, file, int(drawn.rng.choice([1, 7, 10**6])))
    return {"episode_is": "file"}, np.arange(drawn.rows)


def lists(drawn, folder):
    """A row for each episode. Flags are lists, or for the whole episode; values may have one item more."""
    parts = [slice(first, first + length) for first, length in zip(drawn.first, drawn.lengths, strict=True)]
    columns, states = {}, pa.array(drawn.states())
    for name, column in drawn.columns().items():
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        whole = name == "episode" or (name in ("terminated", "truncated") and drawn.rng.random() < 0.5)
        rows = [column[part] for part in parts]
        if drawn.keeps_final and name == drawn.valued:
            rows = [states[part.start + n : part.stop + n + 1] for n, part in enumerate(parts)]
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
    arrays = drawn.numbers() | drawn.all_flags()
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
    columns = drawn.columns() | {"done": pa.array(drawn.last)}
    del columns["terminated"]
    names = {"episode": "episode_index", "step": "frame_index", "rewards": "next.reward", "done": "next.done"}
    names |= {"truncated": "next.truncated"}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"total_frames": drawn.rows}))
    named = {names.get(role, role): column for role, column in columns.items()}
    order = in_files(drawn, folder / "data" / "chunk-000", named, ".parquet")
    return {}, order


def flat(drawn):
    arrays = drawn.numbers()
    if drawn.ends and drawn.rng.random() < 0.5:
        return {**arrays, "episode_ends": drawn.first + drawn.lengths}
    if drawn.ends:
        return {**arrays, "episode": drawn.episode}
    return arrays | drawn.all_flags()


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
    names = {"terminated": "terminals", "truncated": "timeouts"} if drawn.rng.random() < 0.5 else {}  # of D4RL
    arrays = {names.get(name, name): array for name, array in flat(drawn).items()}
    hdf5_file(folder / "a.hdf5", arrays, chunks=drawn.rng.random() < 0.5 or None)
    return {}, np.arange(drawn.rows)


def minari_episodes(drawn):
    """Return the arrays of each episode."""
    terminated, truncated, states = drawn.flags("terminated"), drawn.flags("truncated"), drawn.states()
    for number, (first, length) in enumerate(zip(drawn.first, drawn.lengths, strict=True)):
        rows = slice(first, first + length)
        arrays = {"rewards": drawn.rewards[rows]}
        arrays |= {"terminations": terminated[rows], "truncations": truncated[rows]}
        if drawn.valued is not None:
            arrays[drawn.valued] = states[first + number : first + number + length + 1]
        yield arrays


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
        for name in arrays.keys() - {drawn.valued}:
            arrays[name] = np.append(arrays[name], arrays[name][-1:])
        (folder / "data" / f"{number}").mkdir()
        write(pa.table(arrays), folder / "data" / f"{number}" / f"part-0{suffix}", int(drawn.rng.choice([1, 7, 100])))
    return {}, np.arange(drawn.rows)


TABULAR = {kind: partial(in_tables, suffix=f".{kind}") for kind in TABLES} | {
    make.__name__: make for make in (huggingface, one_per_file, lists)
}
TABULAR |= {"states_in_lists": lists, "rllib": rllib, "lerobot": lerobot}
# Only the first ones have a column of steps.
FORMATS = TABULAR | {make.__name__: make for make in (robomimic, npz, npy, hdf5, minari_hdf5, minari_arrow)}
CASE = [(seed, list(FORMATS)[seed % len(FORMATS)]) for seed in range(CASES)]
SOURCES = [*CASE, *((seed, "parquet") for seed in range(CASES, CASES + 20))]


def drawn_source(seed, form, folder, *values_from):
    """Write a random source; return it, the other arguments of compute, and the order of its rows."""
    rng = np.random.default_rng(seed)
    values_from = [each for each in values_from or ["column"] if (each, form) != ("file", "states_in_lists")]
    drawn = Drawn(rng, form, rng.choice(values_from))
    more, order = FORMATS[form](drawn, folder)
    memory = limit(int(rng.choice([7, 40, 150, 10**6])))
    more = {"ends": drawn.ends, "memory": memory, "progress": False, **more}
    if drawn.values_from == "critic":
        more["values"] = Critic(lambda batch: batch[drawn.valued], [drawn.valued], rows=int(rng.choice([7, 8192])))
    elif drawn.values_from == "file":
        more["values"] = values_beside(drawn, folder, order)
    if drawn.values_from != "column" and not (drawn.ends or drawn.keeps_final):
        more["columns"] = NEXT["columns"] | more.get("columns", {})
    return drawn, more, order


def values_beside(drawn, folder, order):
    """Write the values to a file: all states, or a number for each row, or rows in another order, with their keys."""
    if drawn.keys is None or drawn.rng.random() < 0.3:
        np.save(folder.with_name("v.npy"), drawn.states() if drawn.keeps_final else drawn.values[order])
        return folder.with_name("v.npy")
    table = pa.table({"values": drawn.values, **drawn.keys})
    step = table.column_names[2]
    table = table.set_column(2, step, table[step].cast(pa.int16() if drawn.rng.random() < 0.5 else pa.int64()))
    order = drawn.rng.permutation(drawn.rows) if drawn.rng.random() < 0.7 else order
    suffixes = [".parquet", ".arrow", *([".csv"] if drawn.values.dtype == np.float64 else [])]
    return write(table.take(order), folder.with_name(f"v{drawn.rng.choice(suffixes)}"), 7)


def behind_a_url(folder):
    """Copy a folder to fsspec's memory."""
    upath = pytest.importorskip("upath")
    there = upath.UPath(f"memory://{folder.parent.name}")
    for path in contents(folder):
        (there / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return there


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("seed", "form"), SOURCES[::4])  # tests/corpus has the others
def test_same_bits(tmp_path, seed, form, monkeypatch):
    source = tmp_path / form
    drawn, arguments, order = drawn_source(seed, form, source, "column", "file", "critic")
    before, rng = contents(tmp_path), drawn.rng
    most = int(rng.choice([7, 65_536]))  # rows of arrays, of tables in memory and of values to read at once
    for module in ("plan", "stored", "tables", "walk"):
        monkeypatch.setattr(f"fastgae.data.{module}.SLICE", most)
    arguments |= CHOICES[rng.integers(len(CHOICES))]
    answer, quantile = drawn.answer(arguments), None
    if np.isfinite(answer.returns).all():
        arguments["normalize"] = "global" if rng.random() < 0.3 else None
        arguments["label_quantile"] = quantile = rng.choice([0.1, 0.7]) if rng.random() < 0.3 else None
    out = tmp_path / f"out{rng.choice(['.parquet', '.arrow'])}"
    arguments["into" if drawn.table is not None and rng.random() < 0.3 else "out"] = out
    if rng.random() < 0.15:
        source = behind_a_url(source)
    if rng.random() < 0.3:
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):  # there may be fewer runs
            patched.setattr(walk, "compute_run", stopped_after(int(rng.integers(3)), walk.compute_run))
            compute(source, **arguments)
        arguments |= {"resume": True, "memory": limit(int(rng.choice([7, 10**6])))}
    report = compute(source, **arguments)
    got, moments = read(out), fastgae.moments(answer.advantages)
    expected = moments.normalize(answer.advantages) if arguments.get("normalize") else answer.advantages
    for array, name in zip((expected, answer.returns), (n for n in got.column_names if n in RESULTS), strict=True):
        assert bits(got[name].to_numpy()) == bits(array[order]), name
    assert (report.steps, report.episodes) == (drawn.rows, len(drawn.lengths))
    assert np.array_equal(report.mean, moments.mean, equal_nan=True)
    if "into" in arguments:
        assert got.select(drawn.table.column_names).to_pydict() == drawn.table.to_pydict()
    if quantile is not None:
        assert report.threshold == quantile_of(answer.advantages, quantile)
        assert np.array_equal(got["positive"], (answer.advantages > report.threshold)[order])
    assert contents(tmp_path) == before | {out: out.read_bytes()}


DAMAGE = {
    "cut": lambda path, rng: path.write_bytes(path.read_bytes()[: int(rng.integers(1, path.stat().st_size))]),
    "overwritten": lambda path, rng: path.write_bytes(rng.bytes(path.stat().st_size)),
    "emptied": lambda path, rng: path.write_bytes(b""),
    "a folder instead": lambda path, rng: path.unlink() or path.mkdir(),
    "nothing instead": lambda path, rng: path.unlink() or path.symlink_to(path.with_name("nowhere")),
}


@pytest.mark.parametrize(("seed", "form"), CASE[: len(FORMATS)])
def test_damaged_files(tmp_path, seed, form):
    for kind, damage in DAMAGE.items():
        folder = tmp_path / kind
        folder.mkdir()
        drawn, arguments, _ = drawn_source(seed, form, folder / "source")
        files = sorted(path for path in contents(folder / "source") if path.suffix not in ("", ".json"))
        damaged = drawn.rng.choice([path for path in files if not path.name.startswith("cache-")])
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
    return f"rewards is {NAN}"


def infinite_value(drawn, row):
    drawn.values = drawn.values.astype(np.float64)
    drawn.values[row] = -np.inf
    return "values is -inf; expected a finite number"


def missing_value(drawn, row):
    drawn.values = np.ma.masked_array(drawn.values, np.arange(drawn.rows) == row)
    return "values is missing|values is NaN"


def wrong_flag(drawn, row):
    drawn.ends = None
    drawn.flags = lambda name: np.where(np.arange(drawn.rows) == row, 3, getattr(drawn, name)).astype(np.int8)
    return "terminated is 3; expected 0 or 1|truncated is 3; expected 0 or 1"


def early_end(drawn, row):
    drawn.ends = None
    drawn.terminated = np.zeros(drawn.rows, bool)
    drawn.values, drawn.next_values = drawn.values.astype(np.float64), np.full(drawn.rows, np.nan)
    return f"next_values is {NAN}|there is no value of the state after it|values is NaN in the state after this step"


def gap(drawn, row):
    drawn.step = drawn.step + (np.arange(drawn.rows) >= row)
    return "is followed by step"


FAULTS = {each.__name__: each for each in (nan_reward, infinite_value, wrong_flag, early_end, gap, missing_value)}
EXACT = ("nan_reward", "infinite_value", "missing_value")  # the error is of this row
FAULTY = [  # two of each format
    (seed, form, fault)
    for seed, form in CASE[: len(FORMATS)]
    for number, fault in enumerate(FAULTS)
    if (seed + number) % 3 < 1 and (fault not in ("gap", "missing_value") or form in TABULAR)
]


@pytest.mark.parametrize(("seed", "form", "fault"), FAULTY)
def test_faults_of_rows(tmp_path, seed, form, fault):
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng, form)
    inside = np.flatnonzero(~drawn.last & (drawn.step > 0))
    message = FAULTS[fault](drawn, row := int(rng.choice(inside)))
    source = tmp_path / "source"
    more, order = FORMATS[form](drawn, source)
    before = contents(tmp_path)
    given = {"ends": drawn.ends, "memory": limit(int(rng.choice([5, 40, 10**6]))), **more}
    found = str(refused(message, source, tmp_path / "out.parquet", **given))
    assert str(source) in found
    assert ", row " in found or ": row " in found
    if fault in EXACT and len(before) == 1:
        assert f"row {np.flatnonzero(order == row)[0]}: " in found
        assert form not in TABULAR or re.search(rf"\w+ \D*{drawn.episode[row]}(\.0+)?, step \d+(\.0+)?, row", found)
    assert contents(tmp_path) == before
    assert names(tmp_path) == ["source"]
