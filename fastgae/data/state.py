"""What a run keeps beside its results until they are whole: a folder with a lock, a journal, and the numbers so far.

Rows are computed from the last to the first. The results of each lie at its place in files of numbers. The journal has
a line for all rows that are computed at once, with checksums of the line and of the numbers: what is damaged is
computed again. Only names of our own are ever removed.
"""

import errno
import functools
import hashlib
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

import fastgae
from fastgae._call import Array
from fastgae.data.errors import DataError, WriteError, argument, first_line, is_remote, reading
from fastgae.data.files import STORES, resolved, version_of, without_query
from fastgae.data.report import Sums
from fastgae.data.rows import ABOUT, LARGE
from fastgae.data.steps import Following
from fastgae.data.tables import native, open_parquet

LOCK, JOURNAL, NEW = "fastgae.lock", "journal.jsonl", "journal.jsonl.new"
SORTED, PLACES, VALUES, RESULTS = "sorted.parquet", "places", "values", "results"
ADVANTAGES, RETURNS, ENDS = "advantages", "returns", "ends"  # the numbers of each row
NAMES = (LOCK, JOURNAL, NEW, SORTED, PLACES, VALUES, RESULTS, LARGE, ADVANTAGES, RETURNS, ENDS)
OWN = re.compile("|".join([*map(re.escape, NAMES), "duckdb_temp_.*"]))
SUFFIXES = (".parquet", ".arrow", ".feather", ".ipc")
SMALL = 2**26  # bytes of all files of a source up to which a digest of the contents says which source it is


class Done(NamedTuple):
    """The rows from the first one on, which are computed."""

    first: int
    sums: Sums = Sums()
    following: Following | None = None  # what the rows before them need
    findings: Sequence[str] = ()
    diagnosis: fastgae.Diagnosis | None = None  # has the findings, unless an earlier run computed the rows


class State:
    """The folder of one file of results."""

    def __init__(
        self, out: Path, options: Mapping[str, Any], files: Sequence[Path], rows: int, overwrite: bool
    ) -> None:
        self.out, self.folder, self.rows, self._overwrite = out, _folder_for(out), rows, overwrite
        self._versions = {path: version_of(path) for path in files}
        is_small = sum(size for size, _ in self._versions.values()) <= SMALL
        # By number and name of each file: its size, its time, and, if known, a digest of its contents.
        self._files = {
            f"file {number} ({without_query(path.name)})": [*version, _digest(path) if is_small else None]
            for number, (path, version) in enumerate(self._versions.items(), 1)
        }
        self._options: dict[str, Any] = json.loads(json.dumps(options))
        # What results say of their origin: no folders, and no times of small files, so that copies give the same bytes.
        known = [digest or version for *version, digest in self._files.values()]
        self.digest = hashlib.sha256(json.dumps([options, known], sort_keys=True).encode()).hexdigest()
        self._lines: list[dict[str, Any]] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder meanwhile, and remove it at the end if it holds nothing."""
        lock = FileLock(self.folder / LOCK, blocking=False)
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(0o700 if is_remote(self.out) else 0o777)
            self._check_own()
            with suppress(NotImplementedError):  # a file system that knows no locks
                lock.acquire()
        except (Timeout, FileNotFoundError) as error:
            if not self.folder.parent.is_dir():
                raise WriteError(self.out, f"there is no folder {self.folder.parent}") from error
            # Where there is no file, that run has just ended, and has removed the folder.
            raise DataError(f"another run is writing {self.out}: wait for its end, or pass another path") from error
        except OSError as error:
            raise WriteError(self.folder, first_line(error)) from error
        try:
            yield
        except OSError as error:
            raise error if isinstance(error, WriteError) else WriteError(self.folder, first_line(error)) from error
        finally:
            with suppress(OSError):  # another run may have come in between
                if [*self._found()] == [self.folder / LOCK]:
                    (self.folder / LOCK).unlink()
            lock.release()
            with suppress(OSError):
                self.folder.rmdir()

    def _found(self) -> dict[Path, bool]:
        """Return what is in the folder, and whether it is ours: a file of a name that we give, and with no other."""
        found = {}
        for path in self.folder.glob("*"):
            about, is_named = path.lstat(), OWN.fullmatch(path.name) is not None
            found[path] = is_named and stat.S_ISREG(about.st_mode) and (about.st_nlink == 1 or path.name == RESULTS)
        return found

    def _check_own(self) -> None:
        about, found, lock = self.folder.lstat(), self._found(), self.folder / LOCK
        is_other = is_remote(self.out) and hasattr(os, "getuid") and about.st_uid != os.getuid()
        if is_other or not stat.S_ISDIR(about.st_mode) or (found and (lock not in found or lock.lstat().st_size)):
            raise _foreign(self.folder)
        if foreign := [path for path, is_ours in found.items() if not is_ours]:
            raise _foreign(foreign[0])

    def remove(self) -> None:
        """Empty the folder except for the lock."""
        open_parquet.cache_clear()  # Windows removes no open file
        for path, is_ours in self._found().items():
            if is_ours and path.name != LOCK:
                path.unlink()
        self._lines = []

    def finished(self) -> dict[str, Any] | None:
        """Return what finished results with the same options and data say about themselves; None if there are none."""
        if untold := [path for path, (_, tag) in self._versions.items() if tag == ""]:
            why = f"the server of {untold[0]} tells neither a digest nor a time of the file, so it may be another now"
            raise DataError(f"cannot resume: {why}; leave {argument('resume')} out to begin again")
        if (said := about(self.out)).get("asked") != self.digest:
            return None
        self.remove()  # a run may have been killed after it had written the results
        return said

    def begin(self, resume: bool) -> None:
        """Empty the folder, or, to resume, keep what an earlier run with the same options and data has computed."""
        self._check_free(resume)
        if not resume or not (lines := _read(self.folder / JOURNAL)):
            self.remove()
            for path, known in zip(self._versions, self._files.values(), strict=True):
                known[2] = known[2] or (_digest(path) if resume else None)
            lines = [{"options": self._options, "files": self._files}]
        before = lines[0]["options"]
        changed = [name for name in {**before, **self._options} if before.get(name) != self._options.get(name)]
        if changed := sorted([*changed, *self._changed_files(lines[0]["files"])]):
            raise DataError(
                f"cannot resume: {', '.join(changed)} changed since {self.folder} was begun; leave "
                f"{argument('resume')} out to begin again"
            )
        self._write(lines)

    def _changed_files(self, before: Mapping[str, Any]) -> set[str]:
        """Return the names of files that are others now. Size and time are trusted; at another time, contents count."""
        changed = before.keys() ^ self._files.keys()
        for path, (name, now) in zip(self._versions, self._files.items(), strict=True):
            then = before.get(name, now)
            if (now[2] or then[:2] != now[:2]) and then[2] != (now[2] or _digest(path)):
                changed.add(name)
        return changed

    def _check_free(self, resume: bool) -> None:
        """Check that nothing is at the place of the results, or, to overwrite, nothing but earlier results."""
        with reading(self.out):
            if not (self.out.exists() if is_remote(self.out) else os.path.lexists(self.out)):
                return
        if self.reads(self.out):
            raise DataError(f"{self.out} is a file of the source: pass another path")
        is_file = is_remote(self.out) or stat.S_ISREG(self.out.lstat().st_mode)
        if not is_file or "asked" not in about(self.out):
            raise _foreign(self.out)
        if not self._overwrite:
            other = " with results of other options or data" if resume else ""
            way = f"remove it, pass another path, or pass {argument('overwrite', True)}"
            raise DataError(f"{self.out} exists already{other}: {way}")

    def reads(self, path: Path) -> bool:
        """Return whether a file is one of the source, perhaps by another path."""
        if is_remote(path):
            return resolved(path) in map(resolved, self._versions)
        return path.exists() and any(not is_remote(each) and each.samefile(path) for each in self._versions)

    def check_unchanged(self) -> None:
        """Check that the files of the source have not changed since the run began."""
        versions = self._versions.items()
        if changed := [str(path) for path, version in versions if version_of(path, fresh=True) != version]:
            raise DataError(f"{', '.join(changed)} changed while it was read")

    @property
    def is_kept(self) -> bool:
        """Whether a later run has anything to continue from."""
        return bool(self._versions) and len(self._lines) > 1

    def sorted_copy(self) -> Path | None:
        """Return the copy of the rows in the order of their episodes, if there is one."""
        copy, known = self.folder / SORTED, [line["sorted"] for line in self._lines if "sorted" in line]
        if known and copy.is_file() and known == [_digest(copy)]:
            return copy
        if known:
            self._write(self._lines[:1])
        return None

    def sort(self, write: Callable[[Path], None]) -> Path:
        """Write the copy, and forget what was computed in the order of the source."""
        self._write(self._lines[:1])
        write(self.folder / SORTED)
        self._append({"sorted": _digest(self.folder / SORTED)})
        return self.folder / SORTED

    def done(self) -> Done:
        """Return what is computed, as far as the journal and the numbers are whole."""
        done = Done(self.rows)
        for number, line in enumerate(self._lines):
            if "first" in line:
                if line["checksum"] != self._checksum(line["numbers"], slice(line["first"], done.first)):
                    self._write(self._lines[:number])
                    break
                name, *others = line["following"]
                sums = Sums.from_dict(line["sums"])
                done = Done(line["first"], sums, Following(tuple(name), *others), line["findings"])
        return done

    def _checksum(self, kinds: Mapping[str, Any], at: slice) -> int | None:
        with suppress(OSError, ValueError):  # one may be gone, or cut
            return _total(self._mapped(name, kind)[at] for name, kind in kinds.items())
        return None

    def add(self, done: Done, numbers: Mapping[str, Array]) -> None:
        """Keep the numbers of the rows from the first one that is done now up to the first one that was done before."""
        kinds = {name: [array.dtype.str, *array.shape[1:]] for name, array in numbers.items()}
        before = self._lines[-1].get("numbers")
        if before not in (None, kinds):
            raise DataError(f"the results are {kinds} in some rows, and {before} in others")
        for name, array in numbers.items():
            path = self.folder / name
            with path.open("r+b" if path.exists() else "xb") as file:
                file.seek(done.first * array[:1].nbytes)
                file.write(np.ascontiguousarray(array).data)
        line = {"first": done.first, "sums": asdict(done.sums), "following": done.following}
        self._append({**line, "findings": done.findings, "numbers": kinds, "checksum": _total(numbers.values())})

    def numbers(self, name: str, at: slice | Array) -> Any:
        """Return the numbers of some rows; None if there are none of this name."""
        if name not in (kinds := self._lines[-1]["numbers"]):
            return None
        return self._mapped(name, kinds[name])[at]

    def _mapped(self, name: str, kind: Sequence[Any]) -> Array:
        return np.memmap(self.folder / name, kind[0], "r", shape=(self.rows, *kind[1:]))

    def _append(self, line: Mapping[str, Any]) -> None:
        encoded = _encoded(line)
        self._lines.append(json.loads(encoded.partition(b" ")[2]))
        with (self.folder / JOURNAL).open("ab", 0) as file:
            file.write(encoded)

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        self._lines, new = list(lines), self.folder / NEW
        new.write_bytes(b"".join(map(_encoded, lines)))
        new.replace(self.folder / JOURNAL)

    @contextmanager
    def results(self) -> Iterator[IO[bytes]]:
        """Give a new file to write, which becomes the file of results when it is complete and on the disk."""
        path = self.folder / RESULTS
        try:
            path.unlink(missing_ok=True)  # what a killed run has left there may have the name of the results, too
            with path.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if is_remote(self.out):
                _upload(path, self.out, self._overwrite)
            elif self._overwrite:
                path.replace(self.out)
            else:
                _move(path, self.out)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise WriteError(self.out, first_line(error)) from error


def _upload(file: Path, to: Any, replace: bool) -> None:
    """Copy a file to a store, where it appears when all of it has arrived."""
    try:
        to.fs.put_file(str(file), to.path, mode="overwrite" if replace else "create")
    except Exception as error:  # of many libraries; it may hold secrets
        raise OSError(first_line(error)) from None


def _move(file: Path, path: Path) -> None:
    """Move a file to a path in the same file system; raise FileExistsError if something is there."""
    try:
        os.link(file, path)  # a rename would replace what is there
    except OSError as error:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        file.rename(path)  # this file system has no hard links


def _total(arrays: Iterable[Array]) -> int:
    """Return a checksum of numbers."""
    return functools.reduce(lambda known, each: zlib.crc32(np.ascontiguousarray(each).data, known), arrays, 0)


def about(path: Path) -> dict[str, Any]:
    """Return what a file of results says about itself; nothing if it is not from fastgae."""
    if not is_remote(path) and not path.is_file():  # a pipe would wait for a writer
        return {}
    with suppress(DataError, ValueError), reading(path), native(path) as file:
        schema = pq.read_schema(file) if path.suffix == ".parquet" else pa.ipc.open_file(file).schema
        if isinstance(said := json.loads((schema.metadata or {}).get(ABOUT, b"{}")), dict):
            return said
    return {}


def _digest(path: Path) -> str:
    """Return a digest of all bytes of a file. A store keeps digests itself, so that nothing needs to be read there."""
    if is_remote(path):
        return str(version_of(path))
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _foreign(path: Path) -> DataError:
    return DataError(f"{path} is not from fastgae: move it elsewhere, or pass another path")


def _encoded(line: Mapping[str, Any]) -> bytes:
    text = json.dumps(line).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(journal: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal up to the first one that is damaged."""
    lines: list[dict[str, Any]] = []
    for line in journal.read_bytes().splitlines(keepends=True) if journal.is_file() else []:
        checksum, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
            break
        lines.append(json.loads(text))
    return lines


def _folder_for(out: Path) -> Path:
    """Return the folder of a file of results: beside it, or, for a URL, in the folder of temporary files."""
    if not is_remote(out):
        return out.with_name(out.name + ".unfinished")
    if out.protocol not in STORES:  # type: ignore[attr-defined]
        stores = f"a URL of {', '.join(STORES)}, where files appear only when they are whole"
        raise DataError(f"results cannot be written to {out}: expected a file, or {stores}")
    user = os.getuid() if hasattr(os, "getuid") else "user"  # Windows has a folder for each user
    name = hashlib.sha256(str(out).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"fastgae-{user}-{name}-{out.name}.unfinished")
