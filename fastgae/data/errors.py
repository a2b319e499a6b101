"""The error of this package, and what turns the errors of libraries into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


class DataError(ValueError):
    """Recorded data that cannot be computed; the message says the file, and where it can the episode and the step."""


class WriteError(OSError):
    """Results that cannot be written, for example because the disk is full. What is done is kept for ``resume``."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"cannot write {path}: {reason}; what is done is kept: make room, and go on with resume")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of its columns."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in the errors of whoever reads it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} vanished while it was read") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
