"""Write files that get their names when they are complete, and that take the place of nothing of the user's."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from fastgae.data.errors import WriteError
from fastgae.data.urls import is_remote, upload

PARTIAL = ".partial"
Sent: TypeAlias = Callable[[int], AbstractContextManager[Any]]


def new_file(path: Path) -> IO[bytes]:
    """Open a new file in our folder. What a killed run has left there may have a second name, and is not written to."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def store_early(file: IO[bytes], since: int) -> int:
    """Let the system store what was written from ``since`` on, without waiting, and return the length of the file.

    The computation goes on meanwhile, so that the final fsync has little left to wait for. It also raises the errors.
    """
    file.flush()
    # Linux and FreeBSD have it, and may refuse it. Pages that are not stored yet stay in memory.
    with suppress(AttributeError, OSError):
        os.posix_fadvise(file.fileno(), since, 0, os.POSIX_FADV_DONTNEED)
    return file.tell()


@contextmanager
def complete(
    path: Path, into: Path | None = None, *, replace: bool = False, sent: Sent = lambda _: nullcontext()
) -> Iterator[IO[bytes]]:
    """Give a new file to write, which gets its name when it is complete.

    ``path`` is in our folder. ``into`` is a path elsewhere, to which the file moves once it is on the disk; ``replace``
    what is there. ``sent`` gives, for the bytes of the file, the function that takes how many have reached a store.
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
        elif is_remote(into):
            with sent(partial.stat().st_size) as advance:
                upload(partial, into, replace, advance)
            partial.unlink()
        elif replace:
            partial.replace(into)
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
