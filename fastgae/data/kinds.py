"""Recognise the kind of a file by its first bytes, and by its suffix where they say nothing."""

from functools import lru_cache
from pathlib import Path

from fastgae.data.errors import DataError, reading
from fastgae.data.places import DELTA, ICEBERG, log_of
from fastgae.data.urls import is_remote, opened_binary, version_of

PARQUET, ARROW, STREAM, HDF5, NPZ, NPY = "Parquet", "Arrow", "Arrow stream", "HDF5", ".npz", ".npy"
CSV, JSON = "CSV", "JSON"
TEXT = (CSV, JSON)
KINDS = (PARQUET, ARROW, HDF5, NPZ, NPY, *TEXT, DELTA, ICEBERG)
SUFFIXES = {
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), ARROW),
    **dict.fromkeys((".hdf5", ".h5"), HDF5),
    ".npz": NPZ,
    ".npy": NPY,
    **dict.fromkeys((".csv", ".tsv"), CSV),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
}
CONTINUATION = b"\xff" * 4  # how an Arrow stream begins
# The name of an .npy file is the name of its array, so such a file needs its suffix; text begins in any way.
STARTS = {b"PAR1": PARQUET, b"ARROW1": ARROW, CONTINUATION: STREAM, b"\x89HDF\r\n\x1a\n": HDF5, b"PK\x03\x04": NPZ}


def kind_of(path: Path) -> str:
    """Return the kind of a file. The suffix decides only if the file is damaged: its reader says what is wrong."""
    kind = (path.is_dir() and log_of(path)) or _by_content(path) or by_suffix(path)
    if kind is None:
        raise DataError(f"{path} is of no known format: {', '.join(KINDS)}")
    return kind


def by_suffix(path: Path) -> str | None:
    return SUFFIXES.get(path.suffix.partition("?")[0].lower())  # the suffix of a URL may have a query behind it


def is_data(path: Path) -> bool:
    """Return whether a file in a folder is data: by suffix, or by content unless it is a zip archive of anything."""
    if (kind := by_suffix(path)) is not None:
        return kind not in TEXT
    return path.is_file() and _by_content(path) not in (None, NPZ)


def is_text(path: Path) -> bool:
    """Return whether a file in a folder without other data is data; .json files are mostly about the data."""
    return by_suffix(path) in TEXT and path.suffix.lower() != ".json"


def _by_content(path: Path) -> str | None:
    with reading(path):
        if not is_remote(path) and not path.is_file() and path.exists():  # a pipe would wait for a writer
            raise DataError(f"{path} is not a file")
        start = _start_of_version(path, version_of(path)) if is_remote(path) else _start_of(path)
    return next((kind for known, kind in STARTS.items() if start.startswith(known)), None)


def _start_of(path: Path) -> bytes:
    with opened_binary(path) as file:
        return file.read(max(map(len, STARTS)))


@lru_cache(2**16)
def _start_of_version(path: Path, version: object) -> bytes:
    """Return the first bytes of a file behind a URL, where each read takes a moment."""
    return _start_of(path)
