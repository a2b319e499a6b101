"""Results on their way to the sidecar: a folder beside it, which a killed run leaves and another one goes on with.

The folder holds one Arrow file for each computed run of rows, numbered from the end of the source, and what the run was
asked for. A file gets its name only when it is whole.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastgae.data.errors import DataError, WriteError
from fastgae.data.npz import ABOUT
from fastgae.data.packed import unpacked
from fastgae.data.sidecars import about, sidecar_of

ASKED = "asked.json"


class Spool:
    """The folder of one sidecar."""

    def __init__(self, out: Path, asked: Mapping[str, Any]) -> None:
        """``asked``: all that decides on the results."""
        self.out = out
        sidecar_of(out)  # raises before anything is computed
        self.folder = out.with_name(out.name + ".unfinished")
        self._asked = json.loads(json.dumps(asked))
        self._digest = sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def finished(self) -> dict[str, Any] | None:
        """Return what is kept in a sidecar that exists already and was written for the same; None if there is none."""
        if not self.out.exists():
            return None
        said: dict[str, Any] = json.loads(about(self.out) or "{}")
        if said.get("asked") == self._digest:
            self.remove()  # a run may have been killed after it had written the sidecar
            return said
        return None

    def begin(self, resume: bool) -> None:
        """Make the folder, or find the one that a run which was asked for the same has left."""
        file = self.folder / ASKED
        if resume and file.is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
            changed = sorted(
                name for name in before.keys() | self._asked.keys() if before.get(name) != self._asked.get(name)
            )
            if not changed:
                return
            raise DataError(
                f"cannot resume: {', '.join(changed)} changed since {self.folder} was begun; leave resume out to begin "
                "again"
            )
        self.remove()
        self.folder.mkdir(parents=True)
        _write(file, lambda partial: partial.write_text(json.dumps(self._asked, indent=1), encoding="utf-8"))

    def state(self, number: int) -> dict[str, Any] | None:
        """Return what was kept beside the results of a run; None if the run is still to be computed."""
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
        metadata = {ABOUT: json.dumps({**state, "asked": self._digest})}

        def write(partial: Path) -> None:
            first = next(tables)
            # No number is missing, which makes files smaller and faster to write.
            schema = pa.schema([field.with_nullable(False) for field in first.schema], metadata)
            with sidecar_of(self.out).writer(partial, schema, keys) as writer:
                for table in chain([first], tables):
                    writer.write_table(pa.Table.from_arrays(table.columns, schema=schema))

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
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.arrow"


def _write(path: Path, write: Callable[[Path], Any], partial: Path | None = None, *, synced: bool = False) -> None:
    """Write a file under another name, and give it its own when it is whole; ``synced``: when it is on the disk."""
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
