"""Minari datasets: one HDF5 file with a group for each episode, or a folder for each with an Arrow or Parquet file.

An episode of T steps has T + 1 observations. The last one is the state after the last step.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from fastgae.data.described import check_totals, description
from fastgae.data.grouped import Groups, keys_of
from fastgae.data.kinds import HDF5, kind_of
from fastgae.data.pieces import Piece, first_rows, with_columns
from fastgae.data.places import HIDDEN
from fastgae.data.stored import file_of

GROUPS = Groups("episode_", "episode_id", ("observations", "infos", "values"), "Minari")
KEYS = (GROUPS.key, "step")  # what the name of a group or folder, and the place of a row, stand for


def minari_files(source: Path) -> list[Path]:
    """Return the files of a dataset, or of its folder ``data``, in the order of the episodes."""
    if source.is_file():
        return [source]
    data = source / "data" if (source / "data").is_dir() else source
    if (main := data / "main_data.hdf5").is_file():
        return [main]
    found = (path for suffix in ("arrow", "parquet") for path in data.glob(f"[0-9]*/*.{suffix}"))
    visible = (path for path in found if not path.name.startswith(HIDDEN))
    return sorted(visible, key=lambda path: (_episode(path), path.name))


def is_minari(source: Path) -> bool:
    """Return whether a path is a Minari dataset."""
    if source.is_file():
        return kind_of(source) == HDF5 and bool(GROUPS.numbers(source))
    return any(map(_is_described, (source, source / "data")))


def _is_described(folder: Path) -> bool:
    if (folder / "main_data.hdf5").is_file():
        return True
    return "data_format" in description(folder / "metadata.json")


def check_whole(source: Path, files: Sequence[Path], pieces: Sequence[Piece]) -> None:
    """Check that there are as many episodes as the dataset says."""
    steps = sum(piece.rows for piece in pieces)
    if len(files) == 1 and kind_of(files[0]) == HDF5:
        (main,) = files
        episodes = set(GROUPS.numbers(main))
        for path, said in (
            (main, file_of(main).attributes),
            (described := main.with_name("metadata.json"), description(described)),
        ):
            check_totals(path, said, episodes, steps)
    elif source.is_dir() and files:
        described = files[0].parents[1] / "metadata.json"
        check_totals(described, description(described), set(map(_episode, files)), steps)


def _episode(path: Path) -> int:
    """Return the number of the episode of a file, which is in the name of its folder."""
    return int(path.parent.name)


def table_pieces(path: Path, pieces: list[Piece]) -> list[Piece]:
    """Return the pieces of the file of one episode, without the padding of its end, and with its keys."""
    return [
        with_columns(piece, KEYS, partial(keys_of, GROUPS.key, _episode(path))) for piece in without_padding(pieces)
    ]


def without_padding(pieces: list[Piece]) -> list[Piece]:
    """Return all rows except the last one, which holds the state after the last step."""
    *before, last = pieces

    def final(columns: Sequence[str]) -> pa.Table:
        return last.read(columns).slice(last.rows - 1)

    if last.rows > 1:
        return [*before, first_rows(last, last.rows - 1)._replace(final=final)]
    return [*before[:-1], *(piece._replace(final=final) for piece in before[-1:])]
