"""The column names of each format of recorded data, and the place of its sidecar."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fastgae.data.described import check_totals, description
from fastgae.data.errors import DataError, argument, reading
from fastgae.data.kinds import ARROW, CONVERT, HDF5, KINDS, NPY, NPZ, PARQUET, by_suffix, is_data, kind_of
from fastgae.data.minari import (
    check_whole,
    hdf5_pieces,
    hdf5_schema,
    is_minari,
    minari_files,
    table_pieces,
    table_schema,
)
from fastgae.data.npz import npy_files
from fastgae.data.pieces import Piece, arrow_file, arrow_pieces, parquet_pieces, parquet_schema
from fastgae.data.places import listed
from fastgae.data.stored import flat, npy_pieces
from fastgae.data.urls import is_remote

# The roles of columns. "done" is terminated or truncated.
ROLES = ("env", "episode", "step", "rewards", "values", "next_values", "terminated", "truncated", "done")
NAMING = ("env", "episode")  # together they name an episode


class Reader(NamedTuple):
    """How to read a file: as pieces, and which columns of numbers it has."""

    pieces: Callable[[Path], list[Piece]]
    schema: Callable[[Path], pa.Schema]


def arrow_schema(path: Path) -> pa.Schema:
    with arrow_file(path) as file:
        return file.schema


TABLES = {
    PARQUET: Reader(parquet_pieces, parquet_schema),
    ARROW: Reader(arrow_pieces, arrow_schema),
}
ARRAYS = {
    **dict.fromkeys((HDF5, NPZ), Reader(lambda path: flat(path).pieces(), lambda path: flat(path).schema())),
    NPY: Reader(npy_pieces, lambda path: flat(path).schema()),
}
READERS = {**TABLES, **ARRAYS}
NUMPY = (NPZ, NPY)


@dataclass(frozen=True)
class Format:
    """One format: its name, the names of its columns and of the results, and the place of the sidecar."""

    name: str
    columns: Mapping[str, str]
    sidecar: Callable[[Path], Path]
    results: Mapping[str, str] = field(default_factory=lambda: {"advantages": "advantages", "returns": "returns"})
    files: Callable[[Path], list[Path]] = lambda source: table_files(source)
    reader: Callable[[Path], Reader] = lambda path: READERS[kind_of(path)]
    # The columns of the state, which a critic reads unless it names others. None: all columns without a role.
    state: tuple[str, ...] | None = None
    # The columns of the state after a row, by the names of the columns of the state in the row.
    next_state: Mapping[str, str] = field(default_factory=dict)
    # Raises if the source says that it has other episodes than its files, or other rows than its pieces.
    check: Callable[[Path, Sequence[Path], Sequence[Piece]], None] = lambda source, files, pieces: None

    def schema(self, path: Path) -> pa.Schema:
        """Return the columns of a file."""
        with reading(path):
            return self.reader(path).schema(path)

    def pieces(self, path: Path) -> list[Piece]:
        """Return the rows of a file, as pieces that can be read by themselves."""
        with reading(path):
            return [piece for piece in self.reader(path).pieces(path) if piece.rows]

    def contents(self, source: Path) -> tuple[list[Path], list[Piece]]:
        """Return the files of a source, and the rows of all files; raise if the source says that it has more."""
        files = self.files(source)
        pieces = [piece for file in files for piece in self.pieces(file)]
        self.check(source, files, pieces)
        return files, pieces


def beside(source: Path) -> Path:
    """Return ``name.advantages.parquet`` next to a file or folder, or ``.npz`` next to NumPy files."""
    stem = source.stem if by_suffix(source) else source.name
    suffix = ".npz" if kind_of(table_files(source)[0]) in NUMPY else ".parquet"
    return source.with_name(f"{stem}.advantages{suffix}")


def table_files(source: Path) -> list[Path]:
    """Return the file, or the files of tables and arrays in the folder in the order of their names."""
    if not source.is_dir():
        return npy_files(source) if by_suffix(source) == NPY else [source]
    # Spark names folders of files like files. An empty one, or a link to nothing, is an error where it is read.
    found = [path for path in listed(source) if is_data(path)]
    return found if is_remote(source) else [path for path in found if not (path.is_dir() and any(path.iterdir()))]


PLAIN = Format(
    "table",
    {role: role for role in ROLES},
    beside,
    next_state={"observations": "next_observations", "obs": "next_obs"},
)
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
    next_state={"obs": "new_obs"},
)


def check_frames(info: Path, pieces: Sequence[Piece]) -> None:
    """Check that there are as many frames as LeRobot's ``info.json`` says."""
    said = {"total_steps": description(info).get("total_frames")}
    check_totals(info, said, None, sum(piece.rows for piece in pieces))


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
    check=lambda source, files, pieces: check_frames(source / "meta" / "info.json", pieces),
)
D4RL = Format(
    "d4rl",
    {"rewards": "rewards", "values": "values", "terminated": "terminals", "truncated": "timeouts"},
    beside,
    next_state={"observations": "next_observations"},
)


def minari_reader(path: Path) -> Reader:
    """Return the reader for one file of a Minari dataset."""
    kind = kind_of(path)
    if kind == HDF5:
        return Reader(hdf5_pieces, hdf5_schema)
    pieces, schema = READERS[kind]
    return Reader(lambda path: table_pieces(path, pieces(path)), lambda path: table_schema(schema(path)))


MINARI = Format(
    "minari",
    {
        "episode": "episode_id",
        "step": "step",
        "rewards": "rewards",
        "values": "values",
        "terminated": "terminations",
        "truncated": "truncations",
    },
    lambda source: source / "advantages.parquet" if (source / "data").is_dir() else beside(source),
    files=minari_files,
    reader=minari_reader,
    state=("observations",),
    check=check_whole,
)
FORMATS = {each.name: each for each in (PLAIN, RLLIB, LEROBOT, MINARI, D4RL)}


def format_of(name: str, source: Path) -> Format:
    """Return the format of this name, or, for "auto", the format that the files show."""
    if name in FORMATS:
        return FORMATS[name]
    if name != "auto":
        raise ValueError(f"{argument('format')} must be auto, {', '.join(FORMATS)}, got {name!r}")
    if (source / "meta" / "info.json").is_file() and (source / "data").is_dir():
        return LEROBOT
    if is_minari(source):
        return MINARI
    files = table_files(source)
    if not files:
        raise DataError(
            f"{source} holds no file of a known format: {', '.join(KINDS)}, or a LeRobot or Minari dataset; {CONVERT}"
        )
    names = set(PLAIN.schema(files[0]).names)
    for known, marks in ((RLLIB, {"eps_id", "terminateds"}), (D4RL, {"rewards", "terminals"})):
        if marks <= names:
            return known
    return PLAIN
