"""Unfinished results: a folder next to the sidecar, which a killed run leaves and the next run continues from.

The folder holds one Arrow file for each computed run of rows, numbered from the end of the source, and the options of
the computation. A file gets its name only when it is complete.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastgae.data.asked import Asked, differing
from fastgae.data.errors import DataError, WriteError
from fastgae.data.lock import LOCK, locked
from fastgae.data.npz import ABOUT
from fastgae.data.packed import unpacked
from fastgae.data.sidecars import about, sidecar_of

ASKED = "asked.json"


class Spool:
    """The folder of one sidecar."""

    def __init__(self, out: Path, asked: Asked) -> None:
        self.out = out
        sidecar_of(out)  # raises before anything is computed
        self.folder = out.with_name(out.name + ".unfinished")
        self._asked = asked
        self._begun = asked.here_and_now()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder meanwhile."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder))
            except BlockingIOError as error:
                raise DataError(
                    f"another run is writing {self.out}: wait for its end, or pass another path as out"
                ) from error
            yield

    def finished(self) -> dict[str, Any] | None:
        """Return the metadata of a finished sidecar with the same options and data; None if there is none."""
        if not self.out.exists():
            return None
        said: dict[str, Any] = json.loads(about(self.out) or "{}")
        newer = self.out.stat().st_mtime_ns > self._asked.changed()
        if newer and said.get("asked") == self._asked.digest():
            self.remove()  # a run may have been killed after it had written the sidecar
            return said
        return None

    def begin(self, resume: bool) -> None:
        """Empty the folder, or, to resume, keep the results of an earlier run with the same options and data."""
        if self.out.exists():
            raise DataError(f"{self.out} exists already: remove it, or pass another path as out")
        file = self.folder / ASKED
        if resume and file.is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
            if not (changed := differing(before, self._begun)):
                return
            raise DataError(
                f"cannot resume: {', '.join(changed)} changed since {self.folder} was begun; leave resume out to begin "
                "again"
            )
        self.remove()
        _write(file, lambda partial: partial.write_text(json.dumps(self._begun, indent=1), encoding="utf-8"))

    def state(self, number: int) -> dict[str, Any] | None:
        """Return the state that was kept with the results of a run; None if the run has not been computed yet."""
        try:
            with pa.memory_map(str(self._file(number))) as file:
                state: dict[str, Any] = json.loads(pa.ipc.open_file(file).schema.metadata[ABOUT])
                return state
        except (FileNotFoundError, pa.ArrowInvalid):  # the machine stopped before all of the file was on the disk
            return None

    def table(self, number: int) -> pa.Table:
        """Return the results of a run."""
        with pa.memory_map(str(self._file(number))) as file:
            return unpacked(pa.ipc.open_file(file).read_all().replace_schema_metadata(None))

    def add(self, number: int, table: pa.Table, state: Mapping[str, Any]) -> None:
        """Keep the results of a run of rows, whose keys may be packed."""
        table = table.replace_schema_metadata({ABOUT: json.dumps(state)})

        def write(partial: Path) -> None:
            with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)

        _write(self._file(number), write)

    def finish(self, tables: Iterator[pa.Table], keys: list[str], state: Mapping[str, Any]) -> None:
        """Write the sidecar, and remove the folder."""
        metadata = {ABOUT: json.dumps({**state, "asked": self._asked.digest()})}

        def write(partial: Path) -> None:
            first = next(tables)
            # No number is missing, which makes files smaller and faster to write.
            schema = pa.schema([field.with_nullable(False) for field in first.schema], metadata)
            with sidecar_of(self.out).writer(partial, schema, keys) as writer:
                for table in chain([first], tables):
                    writer.write_table(pa.Table.from_arrays(table.columns, schema=schema))
            # Without this check, the sidecar could be newer than changed data, to which it does not belong.
            if changed := differing(self._begun, self._asked.here_and_now()):
                raise DataError(f"{', '.join(changed)} changed while it was read")

        self.out.parent.mkdir(parents=True, exist_ok=True)
        _write(self.out, write, self.folder / self.out.name, synced=True)
        self.remove()

    def clear(self) -> None:
        """Remove the results of all runs."""
        for number in count():
            if not self._file(number).exists():
                return
            self._file(number).unlink()

    def remove(self) -> None:
        """Empty the folder except for the lock. First remove the file without which no run can resume."""
        (self.folder / ASKED).unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != LOCK:
                path.unlink()

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.arrow"


def _write(path: Path, write: Callable[[Path], Any], partial: Path | None = None, *, synced: bool = False) -> None:
    """Write a file under a temporary name, and rename it when it is complete; ``synced``: when it is on the disk."""
    partial = path.with_name(path.name + ".partial") if partial is None else partial
    try:
        write(partial)
        if synced:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise WriteError(path, error.strerror or error) from error
