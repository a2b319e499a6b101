"""Ways from a Parquet file of episodes to a file with advantages, as functions of the two paths."""

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastgae
import fastgae.data

from .episodes import GAE_LAMBDA, GAMMA, KEYS, READ

COEFFICIENTS = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA}


class Contender(NamedTuple):
    """How to compute, and what the table says of it."""

    label: str
    run: Callable[[Path, Path, str], float | None]  # from, to, memory; the seconds, where not all of it counts
    slow: bool = False  # measured on fewer steps
    short: bool = False  # measured on many short episodes
    scattered: bool = False  # measured on rows in any order
    computes: bool = True  # and its results are compared with the right ones
    one_process: bool = True  # and its memory is that of the process


def ours(source: Path, out: Path, memory: str) -> None:
    fastgae.data.compute(source, out, memory=memory, progress=False, **COEFFICIENTS, columns={}, num_threads=1)


def pyarrow_alone(source: Path, out: Path, memory: str) -> None:
    """Read what every other reads, and write as much as every other writes, without computing anything."""
    file = pq.ParquetFile(source)
    names = [*KEYS, "rewards", "values"]
    schema = pa.schema([file.schema_arrow.field(name) for name in names])
    with pq.ParquetWriter(out, schema, use_dictionary=KEYS) as writer:
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_group(group, READ).select(names))


@cache
def numba_kernel() -> Any:
    """Return the loop that a careful user writes: no copies, no Python per step, and rounding as NumPy's float32."""
    import numba

    gamma, decay, zero = np.float32(GAMMA), np.float32(GAMMA * GAE_LAMBDA), np.float32(0)

    @numba.njit
    def advantages_of(rewards: Any, values: Any, terminated: Any) -> Any:
        advantages = np.empty_like(rewards)
        next_value = following = zero
        for t in range(len(rewards) - 1, -1, -1):
            if terminated[t]:
                next_value = following = zero
            following = rewards[t] + gamma * next_value - values[t] + decay * following
            next_value = values[t]
            advantages[t] = following
        return advantages

    return advantages_of


def numba_loop(source: Path, out: Path, memory: str, **options: Any) -> None:
    file, writer, kernel = pq.ParquetFile(source), None, numba_kernel()
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group, READ)
        rewards, values, terminated = (rows[name].to_numpy() for name in READ[2:])
        advantages = kernel(rewards, values, terminated)
        columns = {**{key: rows[key] for key in KEYS}, "advantages": advantages, "returns": advantages + values}
        results = pa.table(columns)
        writer = writer or pq.ParquetWriter(out, results.schema, **options)
        writer.write_table(results)
    writer.close()


def polars_frame(source: Path, out: Path, memory: str) -> None:
    """Read everything at once, and write it in row groups of Polars' choice."""
    import polars as pl

    frame = pl.read_parquet(source, columns=READ)
    rewards, values, terminated = (frame[name].to_numpy() for name in READ[2:])
    advantages = numba_kernel()(rewards, values, terminated)
    frame.select(*KEYS, advantages=advantages, returns=advantages + values).write_parquet(out)


def pandas_groupby(source: Path, out: Path, memory: str) -> None:
    import pandas as pd

    frame = pd.read_parquet(source, columns=READ)
    advantages = np.empty(len(frame), np.float32)
    for rows in frame.groupby("episode", sort=False).indices.values():
        rewards, values = (frame[name].to_numpy()[rows] for name in ("rewards", "values"))
        next_value = following = 0.0
        for t in range(len(rows) - 1, -1, -1):
            following = rewards[t] + GAMMA * next_value - values[t] + GAMMA * GAE_LAMBDA * following
            next_value = values[t]
            advantages[rows[t]] = following
    frame["advantages"] = advantages
    frame["returns"] = frame["advantages"] + frame["values"]
    frame[[*KEYS, "advantages", "returns"]].to_parquet(out)


def ray_blocks(source: Path, out: Path, memory: str) -> float:
    import fastgae.ray

    return _with_ray(lambda dataset: fastgae.ray.compute(dataset, **COEFFICIENTS), source, out)


def ray_groups(source: Path, out: Path, memory: str) -> float:
    def computed(episode: dict[str, Any]) -> dict[str, Any]:
        order = np.argsort(episode["step"])
        episode = {name: column[order] for name, column in episode.items()}
        result = fastgae.gae(
            episode["rewards"], episode["values"], episode["terminated"], last_values=0.0, **COEFFICIENTS
        )
        return {**episode, "advantages": result.advantages, "returns": result.returns}

    return _with_ray(lambda dataset: dataset.groupby("episode").map_groups(computed, batch_format="numpy"), source, out)


def _with_ray(computed: Callable[[Any], Any], source: Path, out: Path) -> float:
    """Return the seconds from the file to blocks in Ray's memory, but not those that Ray needs to start."""
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.default_hash_shuffle_parallelism = 2
    began = time.perf_counter()
    results = computed(ray.data.read_parquet(str(source))).materialize()
    seconds = time.perf_counter() - began
    pq.write_table(pa.concat_tables(ray.get(results.to_arrow_refs())), out)
    return seconds


# As fastgae writes, because results hardly repeat.
TUNED = partial(numba_loop, use_dictionary=False, write_statistics=KEYS)
CONTENDERS = {
    "ours": Contender("fastgae.data.compute", ours),
    "scattered": Contender("fastgae.data.compute, rows in any order", ours, scattered=True),
    "pyarrow": Contender("pyarrow, reading and writing only", pyarrow_alone, computes=False),
    "loop": Contender("pyarrow row groups, a Numba kernel, ParquetWriter", numba_loop),
    "tuned": Contender("the same, without dictionaries, and with statistics of keys alone", TUNED),
    "polars": Contender("Polars and a Numba kernel, all in memory", polars_frame),
    "pandas": Contender("pandas groupby and a loop", pandas_groupby, slow=True),
    "ray": Contender("fastgae.ray.compute, one call per block", ray_blocks, short=True, one_process=False),
    "groups": Contender("Ray's map_groups, one call per episode", ray_groups, short=True, one_process=False),
}
