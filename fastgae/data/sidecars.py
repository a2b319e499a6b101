"""Write the results to a file in the format of its suffix, and read back the metadata about the run."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fastgae.data.errors import DataError, argument, reading
from fastgae.data.npz import ABOUT, NpzWriter, npz_about
from fastgae.data.pieces import arrow_file, parquet_metadata
from fastgae.data.shards import is_shard


class Sidecar(NamedTuple):
    """One format of results."""

    writer: Callable[[IO[bytes], pa.Schema, list[str]], Any]  # a context manager that writes tables one after the other
    about: Callable[[Path], bytes | None]  # the value of ABOUT in the metadata
    about_last: bool = True  # the writer takes it after the tables, by add_key_value_metadata()


def arrow_about(path: Path) -> bytes | None:
    with arrow_file(path) as file:
        return (file.schema.metadata or {}).get(ABOUT)


ARROW = Sidecar(lambda file, schema, keys: pa.ipc.new_file(file, schema), arrow_about, about_last=False)
SIDECARS = {
    ".parquet": Sidecar(
        # Keys repeat and rise. Results hardly repeat, and their ranges are alike in all row groups.
        lambda file, schema, keys: pq.ParquetWriter(file, schema, use_dictionary=keys, write_statistics=keys),
        lambda path: parquet_metadata(path).get(ABOUT),
    ),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), ARROW),
    ".npz": Sidecar(lambda file, schema, keys: NpzWriter(file), npz_about),
}


def sidecar_of(path: Path) -> Sidecar:
    """Return the format of results for a file's suffix."""
    try:
        return SIDECARS[".npz" if is_shard(path) else path.suffix]  # a shard is a zip archive too, and has a comment
    except KeyError:
        raise DataError(f"{argument('out')} must end in {', '.join(SIDECARS)}, got {str(path)!r}") from None


def about(path: Path) -> bytes | None:
    """Return the metadata about the run from a file of results."""
    with reading(path):
        return sidecar_of(path).about(path)
