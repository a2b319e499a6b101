"""The options and files of a computation, by which a run recognises the results that an earlier one has left."""

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fastgae.data.errors import reading

BLOCKS, BLOCK = 16, 4096  # how many blocks of a large file are read, and the bytes of each block


class Asked(NamedTuple):
    """Everything that affects the results."""

    options: Mapping[str, Any]
    files: Sequence[Path]

    def here_and_now(self) -> dict[str, Any]:
        """Return the options, and place, size and time of every file."""
        stats = {file: _stat(file) for file in self.files}
        files = {f"file {file.resolve()}": [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()}
        found: dict[str, Any] = json.loads(json.dumps({**files, **self.options}))  # as read from a file
        return found

    def digest(self) -> str:
        """Return a digest of the options and of samples of the files.

        It has neither paths nor times, so that the same data give the same sidecar everywhere.
        """
        found = sha256(json.dumps(self.options, sort_keys=True).encode())
        for file in self.files:
            size = _stat(file).st_size
            found.update(str(size).encode())
            with reading(file), file.open("rb") as content:
                for block in range(BLOCKS):
                    content.seek(max(size - BLOCK, 0) * block // (BLOCKS - 1))
                    found.update(content.read(BLOCK))
        return found.hexdigest()

    def changed(self) -> int:
        """Return the time at which a file last changed or replaced another, in nanoseconds."""
        return max(max(stat.st_mtime_ns, stat.st_ctime_ns) for stat in map(_stat, self.files))


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the items that differ."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _stat(file: Path) -> os.stat_result:
    with reading(file):
        return file.stat()
