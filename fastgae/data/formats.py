"""The column names of each format of recorded data, and the place of its sidecar."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from fastgae.data.described import check_totals, description
from fastgae.data.errors import DataError, argument, column_argument, reading
from fastgae.data.grouped import Groups
from fastgae.data.kinds import ARROW, HDF5, KINDS, NPY, NPZ, PARQUET, STREAM, TEXT, by_suffix, is_data, is_text, kind_of
from fastgae.data.minari import GROUPS, check_whole, is_minari, minari_files, table_pieces
from fastgae.data.nested import unnested
from fastgae.data.npz import npy_files
from fastgae.data.pieces import Piece, arrow_pieces, parquet_pieces, with_columns
from fastgae.data.places import DELTA, ICEBERG, files_of, found_sources, listed, log_of
from fastgae.data.stored import flat, npy_pieces
from fastgae.data.streams import stream_pieces, text_pieces
from fastgae.data.tables import HERE, delta_pieces, iceberg_pieces, is_table, pieces_of_table
from fastgae.data.urls import is_remote, without_query

# The roles of columns. "done" is terminated or truncated.
ROLES = ("file", "env", "episode", "step", "rewards", "values", "next_values", "terminated", "truncated", "done")
NAMING = ("file", "env", "episode")  # together they name an episode
FILE = "file"  # the column of this role that ``with_files`` makes


# Return the rows of a file or table, as pieces that can be read by themselves.
Reader: TypeAlias = Callable[[Path], list[Piece]]
TABLES: dict[str, Reader] = {
    PARQUET: parquet_pieces,
    ARROW: arrow_pieces,
    STREAM: stream_pieces,
    **dict.fromkeys(TEXT, text_pieces),
    DELTA: delta_pieces,
    ICEBERG: iceberg_pieces,
}
READERS = {**TABLES, **dict.fromkeys((HDF5, NPZ), lambda path: flat(path).pieces()), NPY: npy_pieces}
NUMPY = (NPZ, NPY)


@dataclass(frozen=True)
class Format:
    """One format: its name, the names of its columns and of the results, and the place of the sidecar."""

    name: str
    columns: Mapping[str, str]
    sidecar: Callable[[Path], Path]
    results: Mapping[str, str] = field(default_factory=lambda: {"advantages": "advantages", "returns": "returns"})
    files: Callable[[Path], list[Path]] = lambda source: table_files(source)
    reader: Reader = lambda path: READERS[kind_of(path)](path)
    # The columns of the state, which a critic reads unless it names others. None: all columns without a role.
    state: tuple[str, ...] | None = None
    # The columns of the state after a row, by the names of the columns of the state in the row.
    next_state: Mapping[str, str] = field(default_factory=dict)
    # What to do where a column is missing, by its role; "state" is what a critic reads.
    advice: Mapping[str, str] = field(default_factory=dict)
    # Raises if the source says that it has other episodes than its files, or other rows than its pieces.
    check: Callable[[Path, Sequence[Path], Sequence[Piece]], None] = lambda source, files, pieces: None

    def pieces(self, path: Path) -> list[Piece]:
        """Return the pieces of a file that have rows."""
        with reading(path):
            return [piece for piece in self.reader(path) if piece.rows]

    def contents(self, source: Path) -> tuple[list[Path], list[Piece]]:
        """Return the files of a source, and the rows of all files; raise if the source says that it has more."""
        files = self.files(source)
        pieces = [piece for file in files for piece in self.pieces(file)]
        self.check(source, files, pieces)
        return [file for path in files for file in files_of(path)], pieces


def beside(source: Path) -> Path:
    """Return ``name.advantages.parquet`` next to a file or folder, or ``.npz`` next to NumPy files."""
    stem = source.stem if by_suffix(source) else source.name
    suffix = ".npz" if kind_of(table_files(source)[0]) in NUMPY else ".parquet"
    return source.with_name(f"{stem}.advantages{suffix}")


def table_files(source: Path) -> list[Path]:
    """Return the file, or the files of tables and arrays in the folder in the order of their names."""
    if not source.is_dir():
        return npy_files(source) if by_suffix(source) == NPY else [source]
    if log_of(source) in TABLES:
        return [source]
    # Hugging Face's save_to_disk names its files; beside them may be caches of what was computed from them.
    if saved := description(source / "state.json").get("_data_files"):
        try:
            return [source / Path(file["filename"]).name for file in saved]
        except (KeyError, TypeError) as error:
            raise DataError(f"{source / 'state.json'} does not name the files of the data") from error
    # Spark names folders of files like files. An empty one, or a link to nothing, is an error where it is read.
    found = listed(source)
    if not is_remote(source):  # where there are no folders, but only names of files
        found = [path for path in found if not (path.is_dir() and any(path.iterdir()))]
    return list(filter(is_data, found)) or list(filter(is_text, found))  # trainers log in text beside their data


SAME = {role: role for role in ("rewards", "values", "next_values")}  # in most formats
PLAIN = Format(
    "table",
    {role: role for role in ROLES if role != FILE},
    beside,
    next_state={"observations": "next_observations", "obs": "next_obs"},
)
RLLIB = Format(
    "rllib",
    {
        **SAME,
        "episode": "eps_id",
        "step": "t",
        "values": "vf_preds",
        "terminated": "terminateds",
        "truncated": "truncateds",
    },
    beside,
    {"advantages": "advantages", "returns": "value_targets"},
    next_state={"obs": "new_obs"},
    advice={
        "step": "RLlib records no t beside single steps: record with output_write_episodes=True, or add a column t",
        "state": "RLlib packs observations into text: record with output_write_episodes=True, or with "
        "output_compress_columns=[]",
    },
)


def check_frames(info: Path, pieces: Sequence[Piece]) -> None:
    """Check that there are as many frames as LeRobot's ``info.json`` says."""
    said = {"total_steps": description(info).get("total_frames")}
    check_totals(info, said, None, sum(piece.rows for piece in pieces))


LEROBOT = Format(
    "lerobot",
    {
        **SAME,
        "episode": "episode_index",
        "step": "frame_index",
        "rewards": "next.reward",
        "done": "next.done",
        "truncated": "next.truncated",
    },
    lambda source: source / "meta" / "advantages.parquet",
    files=lambda source: table_files(source / "data"),
    check=lambda source, files, pieces: check_frames(source / "meta" / "info.json", pieces),
)
D4RL = Format(
    "d4rl",
    {**SAME, "terminated": "terminals", "truncated": "timeouts"},
    beside,
    next_state={"observations": "next_observations"},
)


def minari_pieces(path: Path) -> list[Piece]:
    """Return the rows of one file of a Minari dataset."""
    kind = kind_of(path)
    return GROUPS.pieces(path) if kind == HDF5 else table_pieces(path, READERS[kind](path))


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
    reader=minari_pieces,
    state=("observations",),
    check=check_whole,
)
DEMOS = Groups("data/demo_", "demo", (), "robomimic")
ROBOMIMIC = Format(
    "robomimic",
    {**SAME, "episode": "demo", "step": "step", "done": "dones"},
    beside,
    reader=DEMOS.pieces,
    state=("obs",),
    next_state={"obs": "next_obs"},
)
FORMATS = {each.name: each for each in (PLAIN, RLLIB, LEROBOT, MINARI, D4RL, ROBOMIMIC)}


def format_of(name: str, source: Path) -> Format:
    """Return the format of this name, or, for "auto", the format that the layout of the files shows."""
    if name != "auto":
        return format_named(name)
    if (source / "meta" / "info.json").is_file() and (source / "data").is_dir():
        return LEROBOT
    if is_minari(source):
        return MINARI
    files = table_files(source)
    if files and kind_of(files[0]) == HDF5 and DEMOS.numbers(files[0]):
        return ROBOMIMIC
    if not files:
        raise DataError(f"{source} holds no file of a known format: {', '.join(KINDS)}, or a LeRobot or Minari dataset")
    return PLAIN


def format_named(name: str) -> Format:
    """Return the format of this name; for "auto", the plain one."""
    if name not in FORMATS and name != "auto":
        raise ValueError(f"{argument('format')} must be auto, {', '.join(FORMATS)}, got {name!r}")
    return FORMATS.get(name, PLAIN)


def shown_by(names: Collection[str]) -> Format:
    """Return the format that the names of the columns of a table show."""
    for known, marks in ((RLLIB, {"eps_id", "terminateds"}), (D4RL, {"rewards", "terminals"})):
        if marks <= {*names}:
            return known
    return PLAIN


class Found(NamedTuple):
    """A source: its format, its paths and the files there, which a table in memory has not, and its rows."""

    format: Format
    paths: list[Path]
    files: list[Path]
    pieces: list[Piece]
    names: Collection[str] = ()  # of the files, where they are parts of the names of episodes

    def with_files(self) -> "Found":
        """Return the source with a column that names the file of each row, as seen from a folder of all files."""
        if not self.files:
            raise ValueError(
                f"{argument('episode_is', FILE)} needs a source of files, and this one is a table in memory"
            )
        if FILE in self.pieces[0].schema.names:
            raise DataError(f"{self.pieces[0].path} has a column {FILE!r} itself: pass {column_argument(FILE, FILE)}")
        folders = [path if path.is_dir() else path.parent for path in self.paths]
        parts = zip(*(folder.absolute().parts for folder in folders), strict=False)
        depth = sum(1 for _ in takewhile(lambda names: len({*names}) == 1, parts))

        def named(piece: Piece, name: str) -> Piece:
            return with_columns(piece, [FILE], lambda start, stop: {FILE: pa.repeat(name, stop - start)})

        names = [without_query("/".join(piece.path.absolute().parts[depth:])) for piece in self.pieces]
        return self._replace(pieces=list(map(named, self.pieces, names)), names=list(dict.fromkeys(names)))


def found_in(source: Any, name: str, columns: Mapping[str, str]) -> Found:
    """Return what a source holds; ``name``: of its format, or "auto"; ``columns``: the caller's names of columns."""
    if is_table(source):
        known, paths, files, pieces = format_named(name), [], [], pieces_of_table(source)
    else:
        paths = found_sources(source)
        with reading(paths[0]):
            known = format_of(name, paths[0])
            of_paths = [known.contents(path) for path in paths]
        files = [file for own, _ in of_paths for file in own]
        pieces = [piece for _, own in of_paths for piece in own]
    if not pieces:
        raise DataError(f"there are no rows in {', '.join(map(str, paths)) or HERE}")
    pieces = unnested(pieces, {**known.columns, **columns})
    if not pieces:
        raise DataError(f"the episodes in {', '.join(map(str, paths)) or HERE} have no steps")
    if name == "auto" and known is PLAIN:
        known = shown_by(pieces[0].schema.names)
    return Found(known, paths, files, pieces)
