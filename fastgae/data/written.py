"""Write files that get their names when they are complete, and that take the place of nothing of the user's."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fastgae.data.errors import WriteError

PARTIAL = ".partial"


def new_file(path: Path) -> IO[bytes]:
    """Open a new file in our folder. What a killed run has left there may have a second name, and is not written to."""
    path.unlink(missing_ok=True)
    return path.open("xb")


@contextmanager
def complete(path: Path, into: Path | None = None) -> Iterator[IO[bytes]]:
    """Give a new file to write, which gets its name when it is complete.

    ``path`` is in our folder. ``into`` is a path elsewhere, to which the file moves once it is on the disk.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with new_file(partial) as file:
            yield file
            if into is not None:
                file.flush()
                os.fsync(file.fileno())
        if into is None:
            partial.replace(path)
        else:
            _move(partial, into)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise WriteError(into or path, error.strerror or error) from error


def _move(file: Path, path: Path) -> None:
    """Move a file to a path in the same file system; raise FileExistsError if something is there."""
    try:
        os.link(file, path)  # a rename would replace what is there
    except OSError as error:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        file.rename(path)  # this file system has no hard links
    else:
        file.unlink()
