"""The error of this package, and what turns the errors of libraries into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


class DataError(ValueError):
    """Recorded data that cannot be computed; the message says the file, and where it can the episode and the step."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in the errors of whoever reads it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} vanished while it was read") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
