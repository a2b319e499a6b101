"""Unfinished results: a folder next to the sidecar, which a killed run leaves and the next run continues from.

The folder holds one Arrow file for each computed run of rows, numbered from the end of the source, and the options of
the computation. A file gets its name only when it is complete. Only names of these forms are ever removed.
"""

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import sha256
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fastgae.data.asked import Asked, times_of
from fastgae.data.errors import DataError, WriteError, argument, reading
from fastgae.data.lock import LOCK, foreign, locked
from fastgae.data.npz import ABOUT, COPIED
from fastgae.data.pieces import LARGE, SCRATCH, VALUES, arrow_file
from fastgae.data.progress import Advance, progress_of
from fastgae.data.scattered import COPY, JOINED, SORTING
from fastgae.data.shards import Shard, check_complete, open_archive, write_archive
from fastgae.data.sidecars import about, arrow_about, sidecar_of
from fastgae.data.urls import STORES, is_remote, opened_binary, protocol_of
from fastgae.data.written import PARTIAL, complete, store_early

ASKED, RESULTS = "asked.json", "results"
LAST = "__last__"  # the column of the results of a run that is True where an episode ends
# The results of each run of rows, and all of them in the format of the sidecar; copies of the source, sorted, or of a
# large row group, and of values; and what duckdb writes while it sorts.
WHOLE = "|".join(map(re.escape, (ASKED, RESULTS, COPY, JOINED, LARGE, VALUES)))
FILES = re.compile(rf"{LOCK}|({WHOLE}|\d{{8,}}\.arrow)({re.escape(PARTIAL)})?|{SCRATCH}\w+|{SORTING}/duckdb_temp_[^/]*")


class Spool:
    """The folder of one sidecar."""

    def __init__(self, out: Path, options: Mapping[str, Any], files: Sequence[Path], overwrite: bool = False) -> None:
        self.out, self.overwrite = out, overwrite
        self.folder = _folder_for(out)
        self._times = times_of(files)
        self._asked = Asked.of(options, files)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder meanwhile."""
        with ExitStack() as stack:
            try:
                if is_remote(self.out):
                    stack.enter_context(_private(self.folder.parent))
                stack.enter_context(locked(self.folder))
            except BlockingIOError as error:
                raise DataError(
                    f"another run is writing {self.out}: wait for its end, or pass another path as {argument('out')}"
                ) from error
            except OSError as error:
                raise WriteError(self.folder, error.strerror or error, kept=False) from error
            if others := [path for path in self.folder.rglob("*") if not self._is_own(path)]:
                raise foreign(min(others))
            yield

    def finished(self) -> dict[str, Any] | None:
        """Return the metadata of a finished sidecar with the same options and data; None if there is none."""
        with reading(self.out):
            if not self.out.is_file():
                return None
        said = self._said()
        if said.get("asked") != self._asked.digest():
            return None
        self.remove()  # a run may have been killed after it had written the sidecar
        return said

    def begin(self, resume: bool) -> None:
        """Empty the folder, or, to resume, keep the results of an earlier run with the same options and data."""
        self._check_free()
        asked = self.folder / ASKED
        if resume and asked.is_file():
            before = Asked(**json.loads(asked.read_bytes()))
            if not (changed := before.differing(self._asked)):
                return
            raise DataError(
                f"cannot resume: {', '.join(changed)} changed since {self.folder} was begun; leave "
                f"{argument('resume')} out to begin again"
            )
        self.remove()
        with complete(asked) as file:
            file.write(json.dumps(self._asked._asdict(), indent=1).encode())

    def state(self, number: int) -> dict[str, Any] | None:
        """Return the state that was kept with the results of a run; None if the run has not been computed yet."""
        try:
            state: dict[str, Any] = json.loads(arrow_about(self._file(number)) or "")
            return state
        except (FileNotFoundError, pa.ArrowInvalid):  # the machine stopped before all of the file was on the disk
            return None

    def holds_results(self) -> bool:
        """Return whether a later run has anything to continue from."""
        return any((self.folder / name).exists() for name in (self._file(0).name, COPY, JOINED))

    def table(self, number: int) -> pa.Table:
        """Return the results of a run, and its column LAST."""
        with arrow_file(self._file(number)) as file:
            return file.read_all().replace_schema_metadata(None)

    def add(self, number: int, table: pa.Table, state: Mapping[str, Any]) -> None:
        """Keep the results of a run of rows, and its column LAST."""
        table = table.replace_schema_metadata({ABOUT: json.dumps(state)})
        small = pa.ipc.IpcWriteOptions(compression="lz4")  # names and steps repeat, and then take hardly any space
        with complete(self._file(number)) as file, pa.ipc.new_file(file, table.schema, options=small) as writer:
            writer.write_table(table)

    def finish(
        self,
        tables: Iterator[pa.Table],
        copied: Collection[str],
        nullable: bool,
        state: Mapping[str, Any],
        progress: bool,
    ) -> None:
        """Write the sidecar, and remove the folder. Columns copied from the source have nulls only if ``nullable``.

        If ``takes_state_last``, the state may become complete while the tables are made.
        """
        with self._results(progress) as file, ExitStack() as stack:
            writer: Any = None
            stored = 0
            for table in tables:
                if writer is None:
                    # No result is missing, which makes files smaller and faster to write.
                    fields = [field.with_nullable(nullable and field.name in copied) for field in table.schema]
                    schema = pa.schema(fields, None if self.takes_state_last else {ABOUT: self._about(state)})
                    writer = stack.enter_context(sidecar_of(self.out).writer(file, schema, list(copied)))
                writer.write_table(pa.Table.from_arrays(table.columns, schema=schema))
                stored = store_early(file, stored)
                del table  # its memory is free before the next one is made
            if self.takes_state_last:
                writer.add_key_value_metadata({ABOUT: self._about(state).encode()})
        self.remove()

    def pack(self, state: Mapping[str, Any], progress: bool) -> None:
        """Write the file of a shard, and remove the folder."""
        with self._results(progress) as file:
            write_archive(file, [self.folder / ASKED, *self._runs()], self._about(state).encode())
        self.remove()

    def unpack(self, shards: Sequence[Shard]) -> None:
        """Copy the results of all shards into the folder, where runs are numbered from the last one on."""
        check_complete(shards, self.out)
        number = 0
        for shard in (each.beside(self.out) for each in sorted(shards, reverse=True)):
            with reading(shard), opened_binary(shard, "readahead") as content, open_archive(shard, content) as archive:
                before = Asked(**json.loads(archive.read(ASKED)))
                before = before._replace(options={k: v for k, v in before.options.items() if k != "shard"})
                if differing := before.differing(self._asked):
                    raise DataError(f"cannot merge {shard}: {', '.join(differing)} differs from the other shards")
                for own in takewhile(archive.namelist().__contains__, (self._file(n).name for n in count())):
                    with archive.open(own) as run, complete(self._file(number)) as file:
                        shutil.copyfileobj(run, file, COPIED)
                    number += 1

    def remove_shards(self, shards: Sequence[Shard]) -> None:
        """Remove the files of shards, after their results have been written."""
        for file in (shard.beside(self.out) for shard in shards):
            with suppress(DataError):  # somebody has put another file there
                if about(file):
                    file.unlink()

    @contextmanager
    def _results(self, progress: bool) -> Iterator[IO[bytes]]:
        """Give the file of all results, which appears as a whole; raise if the source has changed meanwhile."""

        def sent(size: int) -> AbstractContextManager[Advance]:
            return progress_of("uploading", size, progress, "bytes")

        with complete(self.folder / RESULTS, self.out, replace=self.overwrite, sent=sent) as file:
            yield file
            before, now = self._times, times_of(self._times, fresh=True)
            if changed := [path for path in now if now[path] != before[path]]:
                raise DataError(f"{', '.join(map(str, changed))} changed while it was read")

    @property
    def takes_state_last(self) -> bool:
        return sidecar_of(self.out).about_last

    def _about(self, state: Mapping[str, Any]) -> str:
        return json.dumps({**state, "asked": self._asked.digest()})

    def clear(self) -> None:
        """Remove the results of all runs."""
        for run in self._runs():
            run.unlink()

    def remove(self) -> None:
        """Empty the folder except for the lock. First remove the file without which no run can resume."""
        (self.folder / ASKED).unlink(missing_ok=True)
        for path in sorted(self.folder.rglob("*"), reverse=True):  # a folder after its files
            if path.name == SORTING:
                with suppress(OSError):  # somebody has put another file there
                    path.rmdir()
            elif path.name != LOCK and self._is_own(path):
                path.unlink()

    def _check_free(self) -> None:
        """Check that nothing is at the place of the results, or, to overwrite, nothing but earlier results."""
        with reading(self.out):
            if not (self.out.exists() if is_remote(self.out) else os.path.lexists(self.out)):
                return
        if not self.overwrite:
            raise DataError(
                f"{self.out} exists already: remove it, pass another path as {argument('out')}, or pass "
                f"{argument('overwrite', True)}"
            )
        if self.out in self._times or not (is_remote(self.out) or stat.S_ISREG(self.out.lstat().st_mode)):
            raise foreign(self.out)
        if "asked" not in self._said():
            raise foreign(self.out)

    def _said(self) -> dict[str, Any]:
        """Return what the file of results says about itself; nothing if it is not from fastgae."""
        with suppress(ValueError):
            said: dict[str, Any] = json.loads(about(self.out) or "{}")
            return said
        return {}

    def _is_own(self, path: Path) -> bool:
        """Return whether a path in the folder has a name that fastgae gives, and is no link, pipe or such."""
        mode, name = path.lstat().st_mode, path.relative_to(self.folder).as_posix()
        return stat.S_ISDIR(mode) if name == SORTING else stat.S_ISREG(mode) and FILES.fullmatch(name) is not None

    def _runs(self) -> Iterator[Path]:
        return takewhile(Path.exists, map(self._file, count()))

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.arrow"


def _folder_for(out: Path) -> Path:
    """Return the folder of a sidecar: beside it, or, for a URL, in the folder of temporary files."""
    if not is_remote(out):
        return out.with_name(out.name + ".unfinished")
    if protocol_of(out) not in STORES:
        raise DataError(
            f"results cannot be written to {out}: expected a file, or a URL of {', '.join(STORES)}, where files appear "
            "only when they are whole"
        )
    user = os.getuid() if hasattr(os, "getuid") else "user"  # Windows has a folder for each user
    name = f"{sha256(str(out).encode()).hexdigest()[:16]}-{out.name}.unfinished"
    return Path(tempfile.gettempdir(), f"fastgae-{user}", name)


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Make a folder that only this user may enter, and remove it at the end if it is empty."""
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or (hasattr(os, "getuid") and about.st_uid != os.getuid()):
        raise foreign(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
