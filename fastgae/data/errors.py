"""The errors of this package, and functions that turn the errors of libraries into them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa


class DataError(ValueError):
    """Recorded data that cannot be computed. The message names the file and, if possible, the episode and the step."""


class WriteError(OSError):
    """Results that cannot be written, for example because the disk is full. ``resume`` keeps the finished part."""

    def __init__(self, path: Path, reason: object, *, kept: bool = True) -> None:
        advice = "; the finished part is kept: make room, and continue with resume" if kept else ""
        super().__init__(f"cannot write {path}: {reason}{advice}")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of its columns."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in errors that occur while it is read."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} vanished while it was read") from error
    except (pa.ArrowException, duckdb.Error, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
