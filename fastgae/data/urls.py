"""Files behind URLs, such as s3://bucket/a.parquet: paths of universal_pathlib, which uses fsspec.

A path of this machine is a ``pathlib.Path``, and any other is a ``UPath``, which has the same methods.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from fastgae._project import how_to_install
from fastgae.data.extras import brought_by

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters or more, so not a drive of Windows
HERE = ("file", "local")  # the protocols of this machine
PAGES = ("http", "https")  # which have neither folders nor patterns
# Stores in which a file appears only after its last part has arrived.
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "memory")
RANGE = 2**20  # bytes to read at once from files in which much is small


def located(name: Any) -> Path:
    """Return the path of a name or URL, or the path itself."""
    if is_remote(name):
        return name  # type: ignore[no-any-return]
    text = os.fspath(name)
    if (url := URL.match(text)) is None:
        return Path(text)
    if "://" not in text:
        text = text.replace(":/", "://", 1)  # a pathlib.Path has made one slash of two
    with brought_by("remote", without_secrets(text)):
        from fsspec.implementations.local import LocalFileSystem
        from upath import UPath
    if url[1].lower() in HERE:
        return Path(LocalFileSystem._strip_protocol(text))
    path: Any = UPath(text)
    try:
        path.fs.invalidate_cache()  # imports the library of this protocol, and forgets what an earlier run saw
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{without_secrets(text)} needs a library that is not installed: run {how_to_install('remote')} ({error})"
        ) from error
    return path  # type: ignore[no-any-return]


def is_remote(path: Any) -> bool:
    """Return whether this is a path behind a URL."""
    return hasattr(path, "fs") and hasattr(path, "protocol")


def resolved(path: Path) -> Path:
    """Return an absolute path without links; a URL is one."""
    return path if is_remote(path) else path.resolve()


def protocol_of(path: Any) -> str:
    protocol: str = path.protocol
    return protocol


def without_secrets(text: str) -> str:
    """Return a text without the user names, passwords and signatures of the URLs in it."""
    return re.sub(r"(\w://[^\s?'\"]*)\?[^\s'\"]*", r"\1?...", re.sub(r"(\w://)[^/\s'\"]*@", r"\1", text))


def without_query(name: str) -> str:
    """Return a name without the query behind it, which may hold a signature."""
    return name.partition("?")[0]


def opened_binary(path: Path, cache: str = "none") -> IO[bytes]:
    """Open a file to read; ``cache`` says which ranges fsspec reads of a URL: only those asked for, or more."""
    if not is_remote(path):
        return path.open("rb")
    return path.open("rb", cache_type=cache, block_size=RANGE)  # type: ignore[call-overload,no-any-return]


def version_of(path: Any, fresh: bool = False) -> tuple[int, Any]:
    """Return size and time of a file, by which a change is noticed; behind a URL, the store's tag if it has one.

    ``fresh``: ask the store again, in place of what it said when the files were listed.
    """
    if not is_remote(path):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    if fresh:
        path.fs.invalidate_cache(path.path)
    info = path.fs.info(path.path)
    return info["size"] or 0, tag_of(path) or str(info.get("LastModified") or info.get("created") or "")


def tag_of(path: Any) -> str | None:
    """Return the digest that a store keeps of a file; None if there is none."""
    info = path.fs.info(path.path) if is_remote(path) else {}
    return next((str(info[name]) for name in ("md5Hash", "ETag", "etag", "blob_id") if info.get(name)), None)


def files_below(folder: Any) -> list[Path]:
    """Return all files below a folder behind a URL."""
    return _paths(folder, folder.fs.find(folder.path))


def matching(pattern: Any) -> list[Path]:
    """Return all files and folders that a pattern behind a URL stands for."""
    return [] if pattern.protocol in PAGES else _paths(pattern, pattern.fs.glob(pattern.path))


def _paths(like: Any, names: Sequence[str]) -> list[Path]:
    return [type(like)(like.fs.unstrip_protocol(name), **like.storage_options) for name in sorted(names)]


def upload(file: Path, to: Any, replace: bool, advance: Callable[[int], None] | None) -> None:
    """Copy a file to a store, where it appears when all of it has arrived; raise OSError if it cannot."""
    from fsspec.callbacks import Callback

    class Sent(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            if advance is not None:
                advance(inc)

    try:
        to.fs.put_file(str(file), to.path, callback=Sent(), mode="overwrite" if replace else "create")
    except Exception as error:  # of many libraries; it may hold secrets
        raise OSError((str(error).splitlines() or [type(error).__name__])[0]) from None
