"""Results on their way to the sidecar: a folder beside it, which a killed run leaves and another one goes on with.

The folder holds one Arrow file for each computed run of rows, numbered from the end of the source, and what the run was
asked for. A file gets its name only when it is whole.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastgae.data.errors import DataError

ASKED = "asked.json"
STATE = b"fastgae"  # the key of the state in the metadata of a file's schema


class Spool:
    """The folder of one sidecar."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(out.name + ".unfinished")

    def begin(self, asked: Mapping[str, Any], resume: bool) -> None:
        """Make the folder, or find the one that a run which was asked for the same has left."""
        text = json.dumps(asked, indent=1, sort_keys=True)
        file = self.folder / ASKED
        if resume and file.is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
            if before == json.loads(text):
                return
            changed = sorted(name for name in before.keys() | asked.keys() if before.get(name) != json.loads(text).get(name))
            raise DataError(
                f"cannot resume: {', '.join(changed)} changed since {self.folder} was begun; leave resume out to begin "
                "again"
            )
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        _write(file, lambda partial: partial.write_text(text, encoding="utf-8"))

    def states(self) -> Iterator[dict[str, Any]]:
        """Return what was kept beside each file, from the end of the source on."""
        number = 0
        while (file := self._file(number)).exists():
            with pa.memory_map(str(file)) as opened:
                yield json.loads(pa.ipc.open_file(opened).schema.metadata[STATE])
            number += 1

    def add(self, number: int, table: pa.Table, state: Mapping[str, Any]) -> None:
        """Keep the results of a run of rows."""
        schema = table.schema.with_metadata({STATE: json.dumps(state)})

        def write(partial: Path) -> None:
            with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write_table(table.combine_chunks())

        _write(self._file(number), write)

    def finish(self, numbers: int, keys: list[str], change: Callable[[pa.Table], pa.Table]) -> None:
        """Write the sidecar, in the order of the source, from what the spool holds."""

        def write(partial: Path) -> None:
            with contextlib.ExitStack() as stack:
                writer = None
                for number in reversed(range(numbers)):
                    with pa.memory_map(str(self._file(number))) as file:
                        table = change(pa.ipc.open_file(file).read_all().replace_schema_metadata(None))
                        if writer is None:
                            writer = stack.enter_context(_writer(partial, self.out.suffix, table.schema, keys))
                        writer.write_table(table)

        self.out.parent.mkdir(parents=True, exist_ok=True)
        _write(self.out, write, self.folder / self.out.name)
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.arrow"


def _writer(path: Path, suffix: str, schema: pa.Schema, keys: list[str]) -> Any:
    if suffix == ".parquet":
        return pq.ParquetWriter(path, schema, use_dictionary=keys)  # numbers hardly repeat, but keys do
    return pa.ipc.new_file(str(path), schema)


def _write(path: Path, write: Callable[[Path], Any], partial: Path | None = None) -> None:
    """Write a file under another name, and give it its own when it is whole and on the disk."""
    partial = path.with_name(path.name + ".partial") if partial is None else partial
    write(partial)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
