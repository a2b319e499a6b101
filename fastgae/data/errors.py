"""The errors of this package, and functions that turn the errors of libraries into them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from traceback import walk_tb
from typing import Any

from fastgae._support.project import how_to_install

# Whether the caller writes options of the command, and not arguments of Python.
_options: ContextVar[bool] = ContextVar("options", default=False)

LONGEST = 4000  # characters of a message
# The libraries that the extras in pyproject.toml install.
EXTRAS = {
    "data": ("duckdb", "filelock", "pyarrow", "tqdm"),
    "hdf5": ("h5py",),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "remote": ("fsspec", "upath"),
}


@contextmanager
def brought_by(extra: str, what: str) -> Iterator[None]:
    """If an import inside fails, say how to install what is missing, or which library is installed and does not load.

    What is missing belongs to an extra, or is a library that is in no extra.
    """
    libraries = EXTRAS.get(extra, (extra,))
    try:
        yield
    except (MemoryError, RecursionError):  # not a property of the library
        raise
    except Exception as error:  # a library that does not fit the installed NumPy may raise any exception
        if isinstance(error, ModuleNotFoundError) and error.name in libraries:
            run = how_to_install(extra) if extra in EXTRAS else f"pip install {extra}"
            message = f"{what} needs {error.name}, which is not installed: run {run}"
            raise ModuleNotFoundError(message, name=error.name) from error
        modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
        library = next((name for name in (each.partition(".")[0] for each in modules) if name in libraries), None)
        if library is None:  # no library's import: a mistake of ours, or of the caller's
            raise
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise ImportError(f"{what} needs {library}, which is installed but does not load: {cause}") from error


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Let errors name options in place of arguments."""
    token = _options.set(True)
    try:
        yield
    finally:
        _options.reset(token)


def argument(name: str, value: object = None) -> str:
    """Return an argument as its caller writes it: ends="terminated", or --ends terminated."""
    if not _options.get():
        return name if value is None else f"{name}={json.dumps(value) if isinstance(value, str) else value}"
    option = "--episode" if name == "episode_is" else f"--{name.replace('_', '-')}"
    return option if value in (None, True) else f"{option} {value}"


def column_argument(role: str, column: str | None = "NAME") -> str:
    """Return how a caller names the column of a role; None: no column has it."""
    if _options.get():
        return f"--column {role}={column or ''}"
    return f"columns={{{role!r}: {column if column in ('NAME', None) else repr(column)}}}"


class DataError(ValueError):
    """Recorded data that cannot be computed. The message names the file and, if possible, the episode and the step."""

    def __init__(self, message: str) -> None:
        text = without_secrets(message)  # with types, or names of columns, of any length
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


class UnreachableError(DataError):
    """A file behind a URL that cannot be read now. ``resume`` keeps the finished part."""


class WriteError(OSError):
    """Results that cannot be written, for example because the disk is full. The message says if a part is kept."""

    def __init__(self, path: Path, reason: str, *, kept: bool = False) -> None:
        self.path, self.reason = path, reason
        room = "" if is_remote(path) else "make room, and "
        advice = f"; the finished part is kept: {room}continue with {argument('resume')}" if kept else ""
        super().__init__(without_secrets(f"cannot write {path}: {reason}{advice}"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of its columns, if they do not name it."""
    try:
        yield
    except DataError as error:
        raise error if str(path) in str(error) else type(error)(f"{path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in errors that occur while it is read: libraries raise errors of many kinds for a damaged file."""
    try:
        yield
    except (DataError, ImportError, AttributeError, AssertionError, NameError):
        raise
    except Exception as error:
        if is_remote(path):
            # Other libraries raise the same errors for a damaged file and for an answer that they do not expect.
            damaged = isinstance(error, ValueError | LookupError | NotImplementedError)
            of_pyarrow = type(error).__module__.startswith("pyarrow")
            kind = DataError if damaged and of_pyarrow else UnreachableError
            raise kind(f"{path} cannot be read: {first_line(error)}") from None  # the error may hold secrets
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{path} vanished while it was read") from error
        raise DataError(f"{path} cannot be read: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the reason of an error in one line."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def is_remote(path: Any) -> bool:
    """Return whether this is a path behind a URL: a ``UPath``, and no ``pathlib.Path``."""
    return hasattr(path, "fs") and hasattr(path, "protocol")


def without_secrets(text: str) -> str:
    """Return a text without the user names, passwords and signatures of the URLs in it."""
    named = re.sub(r"(\w://)([^/\s'\"@]*|[^/:\s'\"]*:(?!\d+/)[^\s'\"@]*)@", r"\1", text)
    return re.sub(r"(\w://[^?]*)\?[^\s'\"]+", r"\1?...", named)
