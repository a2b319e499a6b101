"""Where files lie: which files a path, a folder or a pattern stands for."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from fastgae.data.errors import DataError, reading
from fastgae.data.urls import PAGES, files_below, is_remote, located, matching, protocol_of

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

HIDDEN = ("_", ".")  # how names of files begin that are no data: _temporary, ._a.parquet, _SUCCESS
# Tables with a log of the files, and of the rows of files, that still belong to them.
DELTA, HUDI, ICEBERG = "Delta", "Hudi", "Iceberg"
LOGS = {DELTA: "_delta_log/*", HUDI: ".hoodie/*", ICEBERG: "metadata/*.metadata.json"}


def found_sources(source: Source) -> list[Path]:
    """Return the paths that a path, a pattern or a list of them names."""
    given = list(source) if isinstance(source, list | tuple) else [source]
    for each in given:
        if not (isinstance(each, str | os.PathLike) or is_remote(each)):
            raise TypeError(f"source must be paths, or a table with __arrow_c_stream__, got {type(each).__name__}")
    found = [path for each in given for path in _matches(each)]
    parents = dict.fromkeys(path.absolute().parent for path in found)
    for folder in dict.fromkeys(above for parent in parents for above in (parent, *parent.parents)):
        _check_no_log(folder)
    return found


def path_of(what: str, name: str | os.PathLike[str]) -> Path:
    """Return the path of a name or URL; raise DataError if no library knows such URLs."""
    try:
        return located(name)
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} {os.fspath(name)!r} cannot be used: {error}") from None


def _matches(name: Any) -> Iterator[Path]:
    path = path_of("source", name)
    with reading(path):
        if path.exists():
            yield path
            return
        matches = matching(path) if is_remote(path) else sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 (a pattern may be absolute)
    asked = [part for part in path.parts if part.startswith(HIDDEN)]
    matches = [
        match
        for match in matches
        if not any(part.startswith(HIDDEN) and not any(fnmatch(part, own) for own in asked) for part in match.parts)
    ]
    if not matches:
        raise DataError(f"source '{path}' does not exist")
    yield from matches


def listed(folder: Path) -> list[Path]:
    """Return everything below a folder that is not hidden, in the order of its names."""
    if is_remote(folder):
        return list(_shown(folder, files_below(folder)))
    found = []
    for at, folders, files in os.walk(folder, onerror=_unreadable):
        _check_no_log(Path(at))
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        found += [Path(at, name) for name in (*folders, *files) if not name.startswith(HIDDEN)]
    return sorted(found, key=lambda path: path.parts)


def _shown(folder: Path, files: list[Path]) -> Iterator[Path]:
    """Return the files that are not hidden, of all files below a folder behind a URL."""
    depth = len(folder.parts)
    for file in files:
        for kind, log in LOGS.items():
            if fnmatch(str(file), f"*/{log}"):
                raise _logged(file.parent.parent, kind)
        if not any(part.startswith(HIDDEN) for part in file.parts[depth:]):
            yield file


def _unreadable(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error


def log_of(folder: Path) -> str | None:
    """Return the kind of table that a folder is, if it is one with a log."""
    if is_remote(folder) and protocol_of(folder) in PAGES:
        return None  # pages do not say what is beside them
    with suppress(OSError) if is_remote(folder) else nullcontext():  # a bucket may hide its other files
        return next((kind for kind, log in LOGS.items() if next(folder.glob(log), None) is not None), None)
    return None


def files_of(path: Path) -> list[Path]:
    """Return the file, or the log of a table, which changes whenever the rows of the table change."""
    if not path.is_dir():
        return [path]
    return sorted(file for log in LOGS.values() for file in path.glob(log) if file.is_file())


def _check_no_log(folder: Path) -> None:
    if (kind := log_of(folder)) is not None:
        raise _logged(folder, kind)


def _logged(folder: Path, kind: str) -> DataError:
    way = "read it with its own library, and pass the rows as a table" if kind == HUDI else "pass this folder"
    return DataError(f"{folder} is a {kind} table, whose files also hold rows that were deleted since: {way}")
