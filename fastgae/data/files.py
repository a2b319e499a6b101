"""Where files lie, also behind URLs: which files a path, a folder or a pattern stands for, and of which kind a file is.

A path of this machine is a ``pathlib.Path``. Any other, such as s3://bucket/a.parquet, is a ``UPath`` of
universal_pathlib, which has the same methods and uses fsspec.
"""

import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path, PurePath
from typing import IO, Any, TypeAlias

from fastgae._canonical.arguments import shown
from fastgae._support.project import how_to_install
from fastgae.data.errors import (
    DataError,
    UnreachableError,
    argument,
    brought_by,
    first_line,
    is_remote,
    reading,
    without_secrets,
)

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters or more, so not a drive of Windows
HERE, PAGES = ("", "file", "local"), ("http", "https")  # the protocols of this machine, and those without folders
# Stores in which a file appears only after its last part has arrived.
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "memory")
RANGE = 2**20  # bytes to read at once from files in which much is small
# By which stores and servers tell versions of a file.
DIGESTS = ("md5Hash", "ETag", "etag", "blob_id", "Content-MD5")
TIMES = ("LastModified", "Last-Modified", "mtime", "modify", "created")

HIDDEN = ("_", ".")  # how names of files begin that are no data: _temporary, ._a.parquet, _SUCCESS
# Tables with a log of the files, and of the rows of files, that still belong to them.
LOGS = {"Delta": "_delta_log/*", "Hudi": ".hoodie/*", "Iceberg": "metadata/*.metadata.json"}
PARQUET, ARROW, STREAM, HDF5, NPZ, NPY = "Parquet", "Arrow", "Arrow stream", "HDF5", ".npz", ".npy"
CSV, JSON, ZIP, DELTA = "CSV", "JSON", "zip", "Delta"
KINDS = (PARQUET, ARROW, HDF5, NPZ, NPY, CSV, JSON, DELTA)
# The data in a folder are of the first of these groups that is there: beside them, trainers write text and arrays.
GROUPS = ((PARQUET, ARROW, STREAM), (HDF5, NPZ), (NPY,), (CSV, JSON))
SUFFIXES = {".parquet": PARQUET, ".pq": PARQUET, ".hdf5": HDF5, ".h5": HDF5, ".npz": NPZ, ".npy": NPY}
SUFFIXES |= dict.fromkeys((".arrow", ".feather", ".ipc"), ARROW) | dict.fromkeys((".csv", ".tsv"), CSV)
SUFFIXES |= dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON)
# The name of an .npy file is the name of its array, so such a file needs its suffix; text begins in any way.
STARTS = {b"PAR1": PARQUET, b"ARROW1": ARROW, b"\xff" * 4: STREAM, b"\x89HDF\r\n\x1a\n": HDF5, b"PK\x03\x04": ZIP}
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b'\x04"M\x18': "LZ4",
}
STARTS |= COMPRESSED


def path_of(what: str, name: Any) -> Path:
    """Return the path of a name or URL, or the path itself; raise DataError if no library knows such URLs."""
    if is_remote(name):
        return Path(name.path) if name.protocol in HERE else name
    what = what if what == "source" else argument(what)
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"{what} must be a path, got {shown(name)}")
    text = os.fspath(name)
    if text == "":
        raise DataError(f"{what} is empty: expected a path")
    url = URL.match(text)
    if not url and "::" in text and "://" in text:
        raise DataError(f"{what} {without_secrets(text)!r} is a chain of URLs: pass the last of them alone")
    if url and "://" not in text and url[1].lower() in (*HERE, *PAGES, *STORES):
        text = text.replace(":/", "://", 1)  # a pathlib.Path has made one slash of two
    if not url or "://" not in text:
        try:
            Path(text).absolute()
        except FileNotFoundError as error:
            raise DataError(f"{what} {text!r}: the current folder is gone; pass a path from /, or change it") from error
        return Path(text)
    with brought_by("remote", without_secrets(text)):
        from upath import UPath
    try:
        path: Any = UPath(text)
        path.fs.invalidate_cache()  # imports the library of this protocol, and forgets what an earlier run saw
        return Path(path.path) if path.protocol in HERE else path
    except (ImportError, AttributeError) as error:
        cause = error.__cause__ or error  # fsspec asks to install a library, also where it is there
        if not isinstance(cause, ModuleNotFoundError):
            broken = f"needs a library that does not load: {type(cause).__name__}: {first_line(cause)}"
            raise ImportError(f"{without_secrets(text)} {broken}") from error
        known = f"those of S3, Google Cloud, Hugging Face and the web come with {how_to_install('remote')}"
        missing = f"needs a library that is not installed: {error}; {known}"
        raise ModuleNotFoundError(f"{without_secrets(text)} {missing}") from error
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} {text!r} cannot be used: {error}") from None
    except OSError as error:
        raise UnreachableError(f"{what} {text!r} cannot be reached: {first_line(error)}") from None


def without_query(name: str) -> str:
    """Return a name without the query behind it, which may hold a signature."""
    return name.partition("?")[0]


def opened_binary(path: Path, cache: str = "none") -> IO[bytes]:
    """Open a file to read; ``cache`` says which ranges fsspec reads of a URL: only those asked for, or more."""
    more: dict[str, Any] = {"cache_type": cache, "block_size": RANGE} if is_remote(path) else {}
    file: IO[bytes] = path.open("rb", **more)
    return file


def version_of(path: Any, fresh: bool = False) -> tuple[int, Any]:
    """Return size and time of a file, or the tag of a store, by which a change is noticed; ``fresh``: ask it again."""
    with reading(path):
        if not is_remote(path):
            return (stat := path.stat()).st_size, stat.st_mtime_ns
        if fresh:
            path.fs.invalidate_cache(path.path)
        info = path.fs.info(path.path)
        return info["size"] or 0, next((str(info[name]) for name in (*DIGESTS, *TIMES) if info.get(name)), "")


def found_sources(source: Any) -> tuple[list[Path], list[Path]]:
    """Return the paths that a path, a pattern or a list of them names, and the patterns."""
    found, patterns = list[Path](), list[Path]()
    for each in source if isinstance(source, list | tuple) else [source]:
        if not (isinstance(each, str | os.PathLike) or is_remote(each)):
            raise TypeError(
                f"source must be paths, or a table with __arrow_c_stream__, got {type(each).__name__}: "
                "for arrays in memory, call fastgae.gae; a LazyFrame has collect()"
            )
        path = path_of("source", each)
        with reading(path):
            there = path.exists()
            matches = [path] if there else _matches(path)
        if not matches:
            raise DataError(f"source '{path}' does not exist{_unreachable(path) if is_remote(path) else ''}")
        found, patterns = found + matches, patterns + [path] * (not there)
    if not found:
        raise DataError("source is an empty list: expected a path, or several")
    for folder in dict.fromkeys(above for path in found for above in path.absolute().parents):
        if (kind := log_of(folder)) is not None:
            raise logged(folder, kind)
    return found, patterns


def _unreachable(path: Any) -> str:
    """Return why a file behind a URL may seem not to exist, as far as its library says that."""
    with suppress(DataError), reading(path):
        try:
            path.fs.info(path.path)
        except FileNotFoundError as error:
            return f", or cannot be reached: {first_line(cause)}" if (cause := error.__cause__) else ""
    return ""


def _matches(pattern: Any) -> list[Path]:
    """Return what a pattern stands for, without names that are hidden and that it does not name."""
    asked = [part for part in pattern.parts if part.startswith(HIDDEN)]
    if not is_remote(pattern):
        found = sorted(map(Path, glob.glob(str(pattern), recursive=True)))  # noqa: PTH207 (it may be absolute)
    else:
        found = [] if pattern.protocol in PAGES else _paths(pattern, pattern.fs.glob(pattern.path))

    def is_asked(path: Path) -> bool:
        return all(any(fnmatch(part, own) for own in asked) for part in path.parts if part.startswith(HIDDEN))

    return list(filter(is_asked, found))


def would_read(paths: Sequence[Path], patterns: Sequence[Path], out: Path) -> bool:
    """Return whether a later run would take results for data, in a folder of the source or by its pattern."""
    if any(resolved(path) in resolved(out).parents for path in paths):
        return True
    own, names = str(resolved(out)), [str(resolved(pattern)) for pattern in patterns]
    return any(fnmatch(own, name) if "**" in name else PurePath(own).match(name) for name in names)


def resolved(path: Any) -> Path:
    """Return an absolute path without links, or a URL with the first name of its protocol: s3 for s3a."""
    return _paths(path, [path.path])[0] if is_remote(path) else Path(path).resolve()


def data_files(source: Path) -> list[Path]:
    """Return the file, or the files of data in a folder in the order of their names."""
    if not source.is_dir() or log_of(source) == DELTA:
        return npy_files(source) if by_suffix(source) == NPY else [source]
    kinds = {}
    for path in _listed(source):
        if path.suffix.lower() != ".json":  # they are mostly about the data
            kind = by_suffix(path)
            looked_at = kind in (None, CSV, JSON) and path.is_file()
            kind = (_by_content(path) if looked_at else None) or kind
            # Beside a.csv, b.csv.gz would be left out without a word.
            kinds[path] = by_suffix(path.with_suffix("")) if kind in (*COMPRESSED.values(), ZIP) else kind
    found = [[path for path, kind in kinds.items() if kind in group] for group in GROUPS]
    if found[0] and found[1]:
        raise DataError(f"{source} holds {found[0][0].name} and {found[1][0].name}: pass files of one kind")
    return next(filter(None, found), [])


def _listed(folder: Path) -> list[Path]:
    """Return the files below a folder that are not hidden, in the order of their names."""
    found, order = list[Path](), dict[Path, int]()
    for path in _below(folder):
        for kind, log in LOGS.items():
            if fnmatch("/".join(path.parts[-2:]), log):
                raise logged(path.parent.parent, kind)
        if any(name.startswith(HIDDEN) for name in path.parts[len(folder.parts) :]):
            continue
        found.append(path)
        if path.name == "dataset_dict.json" and len(splits := description(path).get("splits", [])) > 1:
            raise DataError(f"{path.parent} holds the splits {', '.join(map(str, splits))}: pass the folder of one")
        # Hugging Face's save_to_disk names its files; beside them may be caches of what was computed from them.
        if path.name == "state.json" and (saved := description(path).get("_data_files")):
            with reading(path):
                order |= {path.parent / Path(file["filename"]).name: number for number, file in enumerate(saved)}
    if missing := order.keys() - {*found}:
        raise DataError(f"{min(missing)} is missing: state.json beside it names it")
    saved_in = {path.parent for path in order}
    kept = [path for path in found if path in order or path.parent not in saved_in]
    return sorted(kept, key=lambda path: (path.parent.parts, order.get(path, 0), path.name))


def _below(folder: Any) -> Iterator[Path]:
    """Yield the files below a folder, and the empty folders: Spark names folders of files like files."""
    if is_remote(folder):
        with reading(folder):
            found = folder.fs.find(folder.path)
        yield from _paths(folder, found)
        return

    def unreadable(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error

    seen = set()
    for at, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        if (real := os.path.realpath(at)) in seen:
            folders.clear()  # it is a link to a folder around it
        else:
            seen.add(real)
            folders.sort()  # or the disk would decide which of several links to a folder names its files
            yield from (Path(at, name) for name in files or [""] * (not folders))


def _paths(like: Any, names: Sequence[str]) -> list[Path]:
    return [type(like)(like.fs.unstrip_protocol(name), **like.storage_options) for name in sorted(names)]


def npy_files(path: Path) -> list[Path]:
    """Return the .npy files in the folder of one of them, or in a folder."""
    folder = path if path.is_dir() else path.parent
    return sorted(each for each in folder.iterdir() if by_suffix(each) == NPY and not each.name.startswith(HIDDEN))


def log_of(folder: Any) -> str | None:
    """Return the kind of table that a folder is, if it is one with a log."""
    with suppress(DataError), reading(folder):  # a bucket may hide others; and pages do not say what is beside them
        if not (is_remote(folder) and folder.protocol in PAGES):
            return next((kind for kind, log in LOGS.items() if next(folder.glob(log), None) is not None), None)
    return None


def files_of(path: Path) -> list[Path]:
    """Return the file, or the log of a table, which changes whenever the rows of the table change."""
    return sorted(file for file in path.glob(LOGS[DELTA]) if file.is_file()) if path.is_dir() else [path]


def logged(folder: Path, kind: str) -> DataError:
    way = "pass this folder" if kind == DELTA else "read it with its own library, and pass the rows as a table"
    return DataError(f"{folder} is a {kind} table, whose files also hold rows that were deleted since: {way}")


def description(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one if the file is missing or holds no JSON object."""
    with suppress(DataError), reading(path):  # what cannot be reached says so when it is read
        if isinstance(said := json.loads(path.read_bytes()), dict):
            return said
    return {}


def kind_of(path: Path) -> str:
    """Return the kind of a file. The suffix decides only if the file is damaged: its reader says what is wrong."""
    kind = (log_of(path) if path.is_dir() else None) or _by_content(path) or by_suffix(path)
    if kind == ZIP:
        raise DataError(
            f"{path} is a zip archive, but not of NumPy's arrays: write them with numpy.savez, or decompress text"
        )
    if kind in COMPRESSED.values():
        raise DataError(f"{path} is compressed with {kind}: decompress it first")
    if kind is None:
        raise DataError(f"{path} is of no known format: {', '.join(KINDS)}")
    if kind in LOGS and kind != DELTA:
        raise logged(path, kind)
    return kind


def by_suffix(path: Path) -> str | None:
    return SUFFIXES.get(without_query(path.suffix).lower())


def _by_content(path: Path) -> str | None:
    with reading(path):
        if not is_remote(path) and not path.is_file() and path.exists():  # a pipe would wait for a writer
            raise DataError(f"{path} is not a file")
        start = _start_of(path, version_of(path))
    kind = next((kind for known, kind in STARTS.items() if start.startswith(known)), None)
    # The name of the first member of a zip archive follows its header.
    is_npz = kind == ZIP and (
        by_suffix(path) == NPZ or start[30 : 30 + int.from_bytes(start[26:28], "little")].endswith(b".npy")
    )
    return NPZ if is_npz else kind


@lru_cache(2**16)
def _start_of(path: Path, version: object) -> bytes:
    """Return the first bytes of a file, which are kept: behind a URL, each read takes a moment."""
    with opened_binary(path) as file:
        return file.read(30 + 255)
