"""The options and files of a computation, by which a run recognises the results that an earlier one has left."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fastgae.data.errors import reading
from fastgae.data.urls import opened_binary, tag_of, version_of

WHOLE = 2**26  # bytes of all files together up to which the digests read every byte
SAMPLED = 2**24  # bytes of all files together that they read otherwise
BLOCKS, BLOCK = 16, 4096  # how many blocks are read of a file that is too large, and the least bytes of each block


class Asked(NamedTuple):
    """Everything that affects the results.

    It has neither folders nor times, so that the same data give the same sidecar everywhere.
    """

    options: Mapping[str, Any]
    files: Mapping[str, str]  # the digest of each file

    @classmethod
    def of(cls, options: Mapping[str, Any], paths: Sequence[Path]) -> "Asked":
        sizes = [_version(path)[0] for path in paths]
        most = WHOLE if sum(sizes) <= WHOLE else SAMPLED // len(paths)
        digests = {
            f"file {number} ({path.name})": _digest(path, size, most)
            for number, (path, size) in enumerate(zip(paths, sizes, strict=True), 1)
        }
        return cls(json.loads(json.dumps(options)), digests)  # the options as they are read from a file

    def digest(self) -> str:
        """Return one digest of the options and of the files, whatever their names."""
        return sha256(json.dumps([self.options, *self.files.values()], sort_keys=True).encode()).hexdigest()

    def differing(self, other: "Asked") -> list[str]:
        """Return the names of the options and files that differ."""
        ours, theirs = ({**asked.files, **asked.options} for asked in (self, other))
        return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def times_of(paths: Iterable[Path], fresh: bool = False) -> dict[Path, tuple[int, Any]]:
    """Return size and time of every file, by which a change during a run is noticed."""
    return {path: _version(path, fresh) for path in paths}


def _digest(path: Path, size: int, most: int) -> str:
    """Return a digest of a file: of its size and all of its bytes, or of about ``most`` bytes in some blocks.

    A store keeps digests itself, so that nothing needs to be read there.
    """
    with reading(path):
        if (tag := tag_of(path)) is not None:
            return sha256(tag.encode()).hexdigest()
    block = max(BLOCK, most // BLOCKS)
    last = max(size - block, 0)
    firsts = range(0, size, block) if size <= BLOCKS * block else (last * n // (BLOCKS - 1) for n in range(BLOCKS))
    found = sha256(str(size).encode())
    with reading(path), opened_binary(path) as content:
        for first in firsts:
            content.seek(first)
            found.update(content.read(block))
    return found.hexdigest()


def _version(path: Path, fresh: bool = False) -> tuple[int, Any]:
    with reading(path):
        return version_of(path, fresh)
