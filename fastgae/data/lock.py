"""One run at a time in a folder: a lock that ends with its process, however the process ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOCK = "lock"

if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def _drop(file: IO[bytes], path: Path) -> None:
        file.close()  # Windows removes no open file
        path.unlink()

else:
    import fcntl

    def _take(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _drop(file: IO[bytes], path: Path) -> None:
        path.unlink()  # while it is locked, so that no other run can have it
        file.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and keep other runs out of it. Remove it at the end if it holds nothing; raise BlockingIOError."""
    path = folder / LOCK
    file = _locked(path)
    try:
        yield
    finally:
        if [each.name for each in folder.iterdir()] == [LOCK]:
            with suppress(OSError):  # another run may have come in between
                _drop(file, path)
                folder.rmdir()
        file.close()


def _locked(path: Path) -> IO[bytes]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another run ends, and removes the folder
            file = path.open("ab")
            try:
                _take(file)
            except (BlockingIOError, PermissionError) as error:
                file.close()
                raise BlockingIOError(f"{path} is locked") from error
            except OSError:  # a file system that knows no locks: better without one than not at all
                return file
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
            file.close()
