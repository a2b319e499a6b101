"""Minari datasets: one HDF5 file with a group for each episode, or a folder for each with an Arrow or Parquet file.

An episode of T steps has T + 1 observations. The last one is the state after the last step.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import Arrays, column_of
from fastgae.data.described import check_totals, description
from fastgae.data.errors import DataError, reading
from fastgae.data.kinds import HDF5, kind_of
from fastgae.data.pieces import Piece, slices, with_columns
from fastgae.data.places import HIDDEN
from fastgae.data.stored import Stored, file_of, table_of

GROUP = re.compile(r"episode_(\d+)")
KEYS = ("episode_id", "step")  # what the name of a group or folder, and the place of a row, stand for
LONGER = ("observations", "infos", "values")  # what an HDF5 file may have of the state after the last step


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
        return kind_of(source) == HDF5 and bool(_groups(source))
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
        episodes = set(_groups(main))
        for path, said in (
            (main, file_of(main).attributes),
            (described := main.with_name("metadata.json"), description(described)),
        ):
            check_totals(path, said, episodes, steps)
    elif source.is_dir() and files:
        described = files[0].parents[1] / "metadata.json"
        check_totals(described, description(described), set(map(_episode, files)), steps)


class Episodes(NamedTuple):
    """The episodes of an HDF5 file, as rows of one table."""

    stored: Sequence[Stored]
    firsts: Sequence[int]  # the first row of each, and the number of all rows
    schema: pa.Schema  # of the first one, and so of all

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        parts = {}
        for number in range(bisect_right(self.firsts, start) - 1, bisect_left(self.firsts, stop)):
            episode, first = self.stored[number], self.firsts[number]
            parts[number] = episode.arrays(max(start - first, 0), min(stop - first, episode.rows), columns)
        return table_of(
            {name: self._joined(name, {at: part.pop(name) for at, part in parts.items()}) for name in columns}
        )

    def _joined(self, name: str, parts: Mapping[int, Arrays]) -> Arrays:
        """Return the rows of some episodes, which must have one type, as one array or one for each field."""
        one_of_each = {_kind(part): number for number, part in parts.items()}
        for number in one_of_each.values():
            kind, expected = column_of(parts[number]).type, self.schema.field(name).type
            if kind != expected:
                first = self.stored[0].group
                raise DataError(f"{self.stored[number].where}: {name} holds {kind}, and in {first} {expected}")
        return _concatenated(list(parts.values()))


def _kind(arrays: Arrays) -> tuple[Any, ...]:
    """Return the dtype of an array and the shape of its rows, or the fields of a dict."""
    if isinstance(arrays, dict):
        return tuple((name, _kind(part)) for name, part in arrays.items())
    return arrays.dtype, *arrays.shape[1:]


def _concatenated(parts: Sequence[Arrays]) -> Arrays:
    if isinstance(parts[0], dict):
        return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


def hdf5_pieces(path: Path) -> list[Piece]:
    """Return the rows of all episodes of a file, in the order of their numbers."""
    stored = [_hdf5_episode(path, number) for number in _some_groups(path)]
    firsts = list(accumulate((episode.rows for episode in stored), initial=0))
    schema = stored[0].schema()
    read = Episodes(stored, firsts, schema).read
    return [
        piece
        for episode, first in zip(stored, firsts, strict=False)
        for piece in slices(path, first, episode.rows, schema, read, episode.final)
    ]


def _hdf5_episode(path: Path, number: int) -> Stored:
    return Stored.of(path, f"episode_{number}", longer=LONGER, keys=partial(_keys, number))


def _some_groups(path: Path) -> list[int]:
    """Return the numbers of the episodes of a file; raise if it has none."""
    if groups := _groups(path):
        return groups
    raise DataError(f"{path} has no groups episode_0, episode_1 …, which Minari writes")


def _groups(path: Path) -> list[int]:
    with reading(path):
        return sorted(int(match[1]) for match in map(GROUP.fullmatch, file_of(path)) if match)


def _episode(path: Path) -> int:
    """Return the number of the episode of a file, which is in the name of its folder."""
    return int(path.parent.name)


def _keys(episode: int, start: int, stop: int) -> Mapping[str, Array]:
    return {"episode_id": np.full(stop - start, episode), "step": np.arange(start, stop)}


def table_pieces(path: Path, pieces: list[Piece]) -> list[Piece]:
    """Return the pieces of the file of one episode, without the padding of its end, and with its keys."""
    return [with_columns(piece, KEYS, partial(_keys, _episode(path))) for piece in without_padding(pieces)]


def without_padding(pieces: list[Piece]) -> list[Piece]:
    """Return all rows except the last one, which holds the state after the last step."""
    *before, last = pieces

    def final(columns: Sequence[str]) -> pa.Table:
        return last.read(columns).slice(last.rows - 1)

    if last.rows > 1:
        return [*before, _first_rows(last, last.rows - 1)._replace(final=final)]
    return [*before[:-1], *(piece._replace(final=final) for piece in before[-1:])]


def _first_rows(piece: Piece, rows: int) -> Piece:
    def batches(columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        left = rows
        for batch in piece.batches(columns, most):
            if left:
                yield batch.slice(0, left)
            left -= min(left, batch.num_rows)

    return piece._replace(rows=rows, read=lambda columns: piece.read(columns).slice(0, rows), batches=batches)
