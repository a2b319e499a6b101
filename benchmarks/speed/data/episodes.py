"""Recorded episodes to measure with, as a Parquet file that is written in parts, and the right answer for them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastgae

KEYS = ["episode", "step"]
READ = [*KEYS, "rewards", "values", "terminated"]
GROUP = 1 << 20  # rows of a row group
GAMMA, GAE_LAMBDA = 0.99, 0.95


def write_episodes(path: Path, steps: int, mean_length: int) -> None:
    """Write so many steps of episodes of 1 to twice the mean length, which all end for good."""
    rng = np.random.default_rng(0)
    writer, first = None, 0
    for begin in range(0, steps, GROUP):
        rows = min(GROUP, steps - begin)
        part = _part(rng, rows, mean_length, first)
        first = part["episode"][-1].as_py() + 1
        writer = writer or pq.ParquetWriter(path, part.schema, use_dictionary=KEYS)
        writer.write_table(part, row_group_size=GROUP)
    writer.close()


def write_scattered(path: Path, source: Path) -> Path:
    """Write the rows of a file in any order."""
    table = pq.read_table(source)
    order = np.random.default_rng(0).permutation(len(table))
    pq.write_table(table.take(order), path, row_group_size=GROUP, use_dictionary=KEYS)
    return path


def _part(rng: np.random.Generator, rows: int, mean_length: int, first: int) -> pa.Table:
    ends = np.cumsum(rng.integers(1, 2 * mean_length, 1 + 2 * rows // mean_length))
    ends = np.append(ends[ends < rows], rows)
    lengths = np.diff(ends, prepend=0)
    terminated = np.zeros(rows, bool)
    terminated[ends - 1] = True
    rewards, values = rng.standard_normal((2, rows), np.float32)
    columns = {
        "episode": np.repeat(np.arange(first, first + len(lengths)), lengths),
        "step": np.arange(rows) - np.repeat(ends - lengths, lengths),
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
    }
    return pa.table(columns)


def right(source: Path, got: pa.Table) -> bool:
    """Return whether advantages and returns are those of one call of ``fastgae.gae``, up to rounding."""
    order = [(name, "ascending") for name in KEYS]
    table = pq.read_table(source).sort_by(order)
    rewards, values, terminated = (table[name].to_numpy() for name in READ[2:])
    expected = fastgae.gae(rewards, values, terminated, last_values=0.0, gamma=GAMMA, gae_lambda=GAE_LAMBDA)
    got = got.sort_by(order)
    same_rows = all(got[key].equals(table[key]) for key in KEYS)
    columns = {"advantages": expected.advantages, "returns": expected.returns}
    return same_rows and all(np.allclose(got[name], column, rtol=1e-4, atol=1e-4) for name, column in columns.items())
