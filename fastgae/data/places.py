"""Where files lie: which files a path, a folder or a pattern stands for."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn, TypeAlias

from fastgae.data.errors import DataError

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters or more, so not a drive of Windows
HIDDEN = ("_", ".")  # how names of files begin that are no data: _temporary, ._a.parquet, _SUCCESS
# Tables with a log of the files, and of the rows of files, that still belong to them.
DELTA, HUDI, ICEBERG = "Delta", "Hudi", "Iceberg"
LOGS = {DELTA: "_delta_log/*", HUDI: ".hoodie/*", ICEBERG: "metadata/*.metadata.json"}


def found_sources(source: Source) -> list[Path]:
    """Return the paths that a path, a pattern or a list of them names."""
    names: list[str] = []
    for each in source if isinstance(source, list | tuple) else [source]:
        if not isinstance(each, str | os.PathLike):
            raise TypeError(f"source must be paths, or a table with __arrow_c_stream__, got {type(each).__name__}")
        names.append(os.fspath(each))
    found = [path for name in names for path in _matches(name)]
    parents = dict.fromkeys(path.absolute().parent for path in found)
    for folder in dict.fromkeys(above for parent in parents for above in (parent, *parent.parents)):
        _check_no_log(folder)
    return found


def local(what: str, path: str | os.PathLike[str]) -> Path:
    """Return a path; raise if it is a URL, which would otherwise name a folder such as ``s3:`` here."""
    if URL.match(os.fspath(path)):
        raise DataError(
            f"{what} {os.fspath(path)!r} is a URL; fastgae reads and writes files of this machine: copy or mount it"
        )
    return Path(path)


def _matches(name: str) -> Iterator[Path]:
    if Path(name).exists():
        yield Path(name)
        return
    pattern = local("source", name)
    asked = [part for part in pattern.parts if part.startswith(HIDDEN)]
    matches = [
        path
        for path in map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207 (a pattern may be absolute)
        if not any(part.startswith(HIDDEN) and not any(fnmatch(part, own) for own in asked) for part in path.parts)
    ]
    if not matches:
        raise DataError(f"source {name!r} does not exist")
    yield from matches


def listed(folder: Path) -> list[Path]:
    """Return everything below a folder that is not hidden, in the order of its names."""
    found = []
    for at, folders, files in os.walk(folder, onerror=_unreadable):
        _check_no_log(Path(at))
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        found += [Path(at, name) for name in (*folders, *files) if not name.startswith(HIDDEN)]
    return sorted(found)


def _unreadable(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error


def log_of(folder: Path) -> str | None:
    """Return the kind of table that a folder is, if it is one with a log."""
    return next((kind for kind, log in LOGS.items() if next(folder.glob(log), None) is not None), None)


def log_files(folder: Path) -> list[Path]:
    """Return the log of a table, which changes whenever its rows change."""
    return sorted(path for log in LOGS.values() for path in folder.glob(log) if path.is_file())


def _check_no_log(folder: Path) -> None:
    if (kind := log_of(folder)) is not None:
        way = "read it with its own library, and pass the rows as a table" if kind == HUDI else "pass this folder"
        raise DataError(f"{folder} is a {kind} table, whose files also hold rows that were deleted since: {way}")
