"""A folder of our own, for one run at a time: a lock that ends with its process, however the process ends.

The lock is a file that says that the folder is ours. It is the first thing in the folder and the last.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from fastgae.data.errors import DataError, argument

LOCK = "lock"
MARK = b"fastgae keeps the unfinished results of a computation in this folder, and removes them at its end.\n"

if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[bytes]) -> None:
        file.seek(2**30)  # other bytes of the file can still be read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)

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
    """Make a folder and keep other runs out of it, and remove it at the end if it holds nothing.

    Raise BlockingIOError if another run has it, and DataError if it is not ours.
    """
    file = _locked(folder)
    try:
        yield
    finally:
        with file, suppress(OSError):  # another run may have come in between
            if _names(folder) == [LOCK]:
                _drop(file, folder / LOCK)
                folder.rmdir()


def foreign(path: Path) -> DataError:
    return DataError(f"{path} is not from fastgae: move it elsewhere, or pass another path as {argument('out')}")


def _locked(folder: Path) -> IO[bytes]:
    """Return the locked file. A run that was killed in here, or at its very end, leaves an empty folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
        # Another run may begin or end meanwhile, which makes or removes the folder and the lock.
        with suppress(FileExistsError, FileNotFoundError), ExitStack() as stack:
            file = stack.enter_context(_opened(path))
            try:
                _take(file)
            except (BlockingIOError, PermissionError) as error:
                raise BlockingIOError(f"{path} is locked") from error
            except OSError:  # a file system that knows no locks: better without one than not at all
                pass
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                _mark(file, folder)
                stack.pop_all()
                return file


def _opened(path: Path) -> IO[bytes]:
    """Open the lock of a folder, or make it in an empty one."""
    folder = path.parent
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise foreign(folder)
    if not (names := _names(folder)):
        return path.open("xb+", 0)
    if LOCK not in names or not stat.S_ISREG(path.lstat().st_mode):
        raise foreign(folder)
    return path.open("rb+", 0)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _mark(file: IO[bytes], folder: Path) -> None:
    """Check that the lock says that the folder is ours, and let it say so if nothing else is in the folder."""
    content = file.read(len(MARK) + 1)
    if content == MARK:
        return
    if content or _names(folder) != [LOCK]:
        raise foreign(folder)
    file.write(MARK)
