"""Parts of one computation that several processes compute, on one machine or on many.

A shard takes whole runs of rows, so that the runs are those of one process. If the episode of its last row goes on
after them, it also computes the rest of this episode, for the numbers that its rows need, and drops the results. The
file of a shard is a zip archive with its unfinished results. With all of them, a computation is finished like one that
was interrupted, and ends in the same bytes.
"""

import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from fastgae.data.columns import Columns, steps_of
from fastgae.data.errors import DataError, argument
from fastgae.data.npz import COPIED, new_member
from fastgae.data.pieces import Piece, first_rows, grouped
from fastgae.data.steps import RowError, last_rows

TEXT = re.compile(r"([1-9]\d*)/([1-9]\d*)", re.ASCII)
NAME = re.compile(r"(.+)\.shard-(\d+)-of-(\d+)", re.ASCII)


class Shard(NamedTuple):
    """The part with this number, from 1, of so many."""

    number: int
    of: int

    @classmethod
    def named(cls, text: str) -> "Shard":
        match = TEXT.fullmatch(str(text))
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"{argument('shard')} must be a number and a count such as 3/8, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def beside(self, out: Path) -> Path:
        """Return the file of this shard of some results."""
        return out.with_name(f"{out.name}.shard-{self.number}-of-{self.of}")

    def share(self, pieces: Sequence[Piece], most: int) -> tuple[list[Piece], list[Piece]]:
        """Return the pieces of this shard, and all pieces after them. Runs have at most ``most`` rows."""
        total = start = sum(piece.rows for piece in pieces)
        first = stop = len(pieces)
        for group in grouped(pieces, most):
            start -= sum(piece.rows for piece in group)
            part = start * self.of // total + 1
            first -= len(group) if part >= self.number else 0
            stop -= len(group) if part > self.number else 0
        return list(pieces[first:stop]), list(pieces[stop:])


def is_shard(path: Path) -> bool:
    """Return whether this is the name of a shard's file."""
    return NAME.fullmatch(path.name) is not None


def shards_of(out: Path) -> list[Shard]:
    """Return the shards of some results whose files are there."""
    matches = [match for path in out.parent.iterdir() if (match := NAME.fullmatch(path.name)) and match[1] == out.name]
    return [Shard(int(match[2]), int(match[3])) for match in matches]


def check_complete(found: Sequence[Shard], out: Path) -> None:
    """Raise if a shard is missing."""
    if not found:
        raise DataError(
            f"there are no shards {out.name}.shard-* beside {out}: compute each of them with {argument('shard')} first"
        )
    counts = {shard.of for shard in found}
    missing = [Shard(number, of) for of in sorted(counts) for number in range(1, of + 1) if (number, of) not in found]
    if missing or len(counts) > 1:
        named = ", ".join(shard.beside(out).name for shard in missing) or "no shard"
        raise DataError(f"{named} is missing: {len(found)} are there, and all must be of one count")


def up_to_an_end(pieces: Sequence[Piece], columns: Columns, most: int) -> list[Piece]:
    """Return the first of some pieces, up to the first row that certainly ends an episode."""
    names = list(columns.of_role.values())
    for number, piece in enumerate(pieces):
        row = 0
        for batch in piece.batches(names, most):
            try:
                steps = steps_of(pa.Table.from_batches([batch]), columns)
            except RowError as error:
                raise DataError(f"{piece.path}: row {piece.first + row + error.row}: {error.fault}") from error
            if steps.rewards.ndim > 1:
                raise DataError("rows with numbers for several envs cannot be computed in shards")
            ends = last_rows(steps, None)
            ends[-1] = steps.terminated[-1] | steps.truncated[-1]  # its name may go on in the next row
            if ends.any():
                return [*pieces[:number], first_rows(piece, row + int(np.argmax(ends)) + 1)]
            row += batch.num_rows
    return list(pieces)


@contextmanager
def open_archive(path: Path, content: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open the file of a shard."""
    try:
        with zipfile.ZipFile(content) as archive:
            yield archive
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not the file of a shard: compute this shard again") from error


def write_archive(file: IO[bytes], members: Sequence[Path], about: bytes) -> None:
    """Write files into a zip archive, always the same bytes for the same files."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = about
        for path in members:
            with path.open("rb") as content, new_member(archive, path.name) as to:
                shutil.copyfileobj(content, to, COPIED)
