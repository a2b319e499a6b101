"""The errors of this package, and functions that turn the errors of libraries into them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import duckdb
import pyarrow as pa

from fastgae.data.urls import is_remote, without_secrets

# Whether the caller writes options of the command, and not arguments of Python.
_options: ContextVar[bool] = ContextVar("options", default=False)

OPTIONS = {"episode_is": "--episode"}  # those that have another name than the argument


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Let errors name options in place of arguments."""
    token = _options.set(True)
    try:
        yield
    finally:
        _options.reset(token)


def argument(name: str, value: object = None) -> str:
    """Return an argument as its caller writes it: ends="terminated", or --ends terminated; columns, or --column."""
    if not _options.get():
        return name if value is None else f"{name}={json.dumps(value) if isinstance(value, str) else value}"
    option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
    return option if value in (None, True) else f"{option} {value}"


def column_argument(role: str, column: str | None = None) -> str:
    """Return how a caller names the column of a role."""
    if _options.get():
        return f"--column {role}={column or 'NAME'}"
    return f"columns={{{role!r}: {'NAME' if column is None else repr(column)}}}"


class DataError(ValueError):
    """Recorded data that cannot be computed. The message names the file and, if possible, the episode and the step."""

    def __init__(self, message: str) -> None:
        super().__init__(without_secrets(message))


class UnreachableError(DataError):
    """A file behind a URL that cannot be read now. ``resume`` keeps the finished part."""


class WriteError(OSError):
    """Results that cannot be written, for example because the disk is full. The message says if a part is kept."""

    def __init__(self, path: Path, reason: object, *, kept: bool = True) -> None:
        self.path, self.reason = path, reason
        room = "" if is_remote(path) else "make room, and "
        advice = f"; the finished part is kept: {room}continue with {argument('resume')}" if kept else ""
        super().__init__(without_secrets(f"cannot write {path}: {reason}{advice}"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of its columns."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in errors that occur while it is read."""
    try:
        yield
    except (DataError, WriteError, ModuleNotFoundError):
        raise
    except Exception as error:  # the libraries behind URLs raise errors of many kinds
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        damaged = isinstance(error, pa.ArrowException | duckdb.Error | UnicodeDecodeError)
        if not (damaged or isinstance(error, OSError) or is_remote(path)):
            raise
        if is_remote(path):
            kind = DataError if damaged else UnreachableError
            raise kind(f"{path} cannot be read: {_first_line(error)}") from None  # the error may hold secrets
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{path} vanished while it was read") from error
        raise DataError(f"{path} cannot be read: {_first_line(error)}") from error


def is_interrupt(error: Exception) -> bool:
    """Return whether Ctrl-C has stopped duckdb, which makes errors of several kinds of it."""
    return "nterrupted" in str(error) and isinstance(error, duckdb.Error | pa.ArrowException | RuntimeError)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
