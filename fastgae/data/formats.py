"""What each format of recorded data calls its columns, and where its sidecar lies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fastgae.data.errors import DataError, reading
from fastgae.data.pieces import Piece, arrow_file, arrow_pieces, parquet_pieces

# What a column can be. "done" is terminated or truncated.
ROLES = ("env", "episode", "step", "rewards", "values", "next_values", "terminated", "truncated", "done")
NAMING = ("env", "episode")  # together they name an episode
READERS: dict[str, Callable[[Path], list[Piece]]] = {
    ".parquet": parquet_pieces,
    ".arrow": arrow_pieces,
    ".feather": arrow_pieces,
    ".ipc": arrow_pieces,
}


@dataclass(frozen=True)
class Format:
    """One format: its name, what it calls its columns, what it calls the results, and where they go."""

    name: str
    columns: Mapping[str, str]
    sidecar: Callable[[Path], Path]
    results: Mapping[str, str] = field(default_factory=lambda: {"advantages": "advantages", "returns": "returns"})
    files: Callable[[Path], list[Path]] = lambda source: table_files(source)


def beside(source: Path) -> Path:
    """Return ``name.advantages.parquet`` beside a file or folder."""
    stem = source.stem if source.suffix in READERS else source.name
    return source.with_name(f"{stem}.advantages.parquet")


def table_files(source: Path) -> list[Path]:
    """Return the file, or the files of tables in the folder in the order of their names."""
    if source.is_file():
        return [source]
    return sorted(path for path in source.rglob("*") if path.suffix in READERS and path.is_file())


PLAIN = Format("table", {role: role for role in ROLES}, beside)
RLLIB = Format(
    "rllib",
    {
        "episode": "eps_id",
        "step": "t",
        "rewards": "rewards",
        "values": "vf_preds",
        "terminated": "terminateds",
        "truncated": "truncateds",
    },
    beside,
    {"advantages": "advantages", "returns": "value_targets"},
)
LEROBOT = Format(
    "lerobot",
    {
        "episode": "episode_index",
        "step": "frame_index",
        "rewards": "next.reward",
        "values": "values",
        "done": "next.done",
        "truncated": "next.truncated",
    },
    lambda source: source / "meta" / "advantages.parquet",
    files=lambda source: table_files(source / "data"),
)
FORMATS = {each.name: each for each in (PLAIN, RLLIB, LEROBOT)}


def format_of(name: str, source: Path) -> Format:
    """Return the format of this name, or for "auto" the one that the files show."""
    if name in FORMATS:
        return FORMATS[name]
    if name != "auto":
        raise ValueError(f"format must be auto, {', '.join(FORMATS)}, got {name!r}")
    if (source / "meta" / "info.json").is_file() and (source / "data").is_dir():
        return LEROBOT
    files = table_files(source)
    if not files:
        raise DataError(f"{source} holds no file of a known format: {', '.join(READERS)}, or a LeRobot dataset")
    names = set(schema(files[0]).names)
    return RLLIB if {"eps_id", "terminateds"} <= names else PLAIN


def schema(path: Path) -> pa.Schema:
    """Return the columns of a file of a table."""
    with reading(path):
        if path.suffix == ".parquet":
            return pq.read_schema(path)
        with arrow_file(path) as file:
            return file.schema
