"""Recorded episodes, as one table, and the answer of one call of fastgae.gae on all of them."""

import csv
import functools
import json
import math
import pkgutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastgae
from fastgae.data import DataError, compute

ROWS = 3000
ROLES = ("rewards", "values", "next_values", "terminated", "truncated")
NAMES = ("episode", "step", *ROLES)
# Those of the source are read beside values from elsewhere only if they are named.
NEXT = {"columns": {"next_values": "next_values"}}


class Recorded:
    """Episodes of 1 to 400 steps; the last one, and some others, are truncated."""

    def __init__(self, seed=0, rows=ROWS):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 400, rows)
        self.episode = np.repeat(np.arange(rows), lengths)[:rows]
        self.last = np.append(self.episode[1:] != self.episode[:-1], True)
        self.first = np.flatnonzero(np.append(True, self.last[:-1]))
        self.step = np.arange(rows) - np.repeat(self.first, np.diff(np.append(self.first, rows)))
        self.terminated = self.last & (rng.random(rows) < 0.7)
        self.truncated = self.last & ~self.terminated
        self.rewards, self.values, self.next_values = rng.normal(size=(3, rows)).astype(np.float32)

    def arrays(self, *names, **others):
        """Return the columns of these names, or of all; ``others`` are in place of some, or more."""
        return {name: getattr(self, name) for name in names or NAMES} | others

    def table(self, *names, **others):
        return pa.table(self.arrays(*names, **others))

    def save(self, folder, *names):
        """Write each column of these names, or of all, as an .npy file, and return the folder."""
        folder.mkdir()
        for name, array in self.arrays(*names).items():
            np.save(folder / name, array)
        return folder

    @functools.cached_property
    def result(self):
        return self.results()

    def results(self, **choice):
        """Return the results of these arguments of ``compute``."""
        return answer(choice, self.rewards, self.values, self.terminated, self.truncated, self.next_values)

    @functools.cached_property
    def ended(self):
        """Return the answer where V' is known only behind truncated steps."""
        return fastgae.gae(
            self.rewards, self.values, self.terminated, self.truncated, last_values=0.0, final_values=self.next_values
        )


# Arguments of compute that choose an estimator. The last returns reach behind the end of every episode.
CHOICES = [
    {"estimator": "gae", "gamma": 0.9},
    {"estimator": "discounted_returns", "gamma": 0.95},
    {"estimator": "n_step_returns", "n": 1},
    {"estimator": "n_step_returns", "n": 7, "gamma": 0.9},
    {"estimator": "n_step_returns", "n": 1000},
]


def answer(choice, rewards, values, terminated, truncated, next_values):
    """Return advantages and returns from one call of the estimator on everything; values and next_values of all rows.

    ``values`` may be None.
    """
    options = {"gamma": 0.99, "gae_lambda": 0.95, **choice}
    gamma, lambda_ = options["gamma"], options["gae_lambda"]
    rows = (rewards, values, terminated, truncated)
    match choice.get("estimator", "gae"):
        case "gae":
            return fastgae.gae(*rows, next_values=next_values, gamma=gamma, gae_lambda=lambda_)
        case "n_step_returns":
            returns = fastgae.n_step_returns(*rows, next_values=next_values, gamma=gamma, n=choice["n"])
        case "discounted_returns":
            final_values = next_values[truncated]
            returns = fastgae.discounted_returns(rewards, terminated, truncated, final_values=final_values, gamma=gamma)
    return fastgae.GAEResult(None if values is None else returns - values, returns)


def computed(source, out, **options):
    """Return what ``compute`` writes to a file."""
    compute(source, out, **{"overwrite": True, "progress": False, **options})
    return read(out)


def refused(message, source, *out, error=DataError, **options):
    """Check that a source is an error with this message, and return the error."""
    with pytest.raises(error, match=message) as caught:
        compute(source, *out, **{"progress": False, **options})
    return caught.value


def stopped(*_, **__):
    raise KeyboardInterrupt


def stopped_after(calls, function):
    """Return a function that may be called so many times; the next call stops the run as Ctrl-C does."""
    left = iter(range(calls))
    return lambda *given, **how: function(*given, **how) if next(left, None) is not None else stopped()


def interrupted(at, source, *out, after=0, **options):
    """Compute until a function is called once more than ``after`` times, which stops the run as Ctrl-C does."""
    name = f"fastgae.data.{at}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(name, stopped_after(after, pkgutil.resolve_name(name)))
        with pytest.raises(KeyboardInterrupt):
            compute(source, *out, progress=False, **options)


def names(folder):
    """Return the names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def limit(rows):
    """Return the memory in which a run has so many rows."""
    from fastgae.data.plan import BYTES_PER_ROW

    return f"{rows * BYTES_PER_ROW}B"


def bits(array):
    """Return the dtype and the bits of numbers, in which every NaN is the same."""
    return array.dtype, np.where(np.isnan(array), np.nan, array).astype(array.dtype).tobytes()


def quantile_of(numbers, quantile):
    return np.sort(numbers)[math.ceil(round(quantile * len(numbers), 6)) - 1]


def put(row, value):
    """Return a function that puts a value into a row of an array."""

    def change(array):
        array = array.astype(np.float64)
        array[row] = value
        return array

    return change


def write(table, path, rows):
    """Write a table to Parquet, Arrow or text, so many rows to a row group or batch."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([table.column_names, *zip(*table.to_pydict().values(), strict=True)])
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        new = pa.ipc.new_stream if path.suffix == ".stream" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return path


def save(path, **arrays):
    """Write arrays to .npz or HDF5."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.update(arrays)


def assert_same_bits(got, answer, order=slice(None)):
    """Check the columns of a table against the results of a call, which has no advantages without values."""
    for name, expected in answer._asdict().items():
        assert (name in got.column_names) == (expected is not None), name
        assert expected is None or bits(got[name].to_numpy()) == bits(expected[order]), name


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def read_arrays(path):
    """Return the columns of results as arrays, of which a row may be of several envs."""
    from fastgae.data.rows import arrays_of

    table = read(path)
    return {name: arrays_of(table[name]) for name in table.column_names}
