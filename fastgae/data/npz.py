"""Read .npz and .npy files, which may be larger than memory, broken or malicious; and write .npz files."""

import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from fastgae._archive import (
    FILE_ERRORS,
    NUMBERS,
    Header,
    check_kind,
    checked_header,
    header_in,
    mapped_npy,
    named_members,
    reason,
)
from fastgae._call import Array
from fastgae.data.arrays import arrays_of
from fastgae.data.errors import DataError, argument, reading
from fastgae.data.kinds import NPY, by_suffix, kind_of
from fastgae.data.pieces import scratch_file, until_end
from fastgae.data.places import HIDDEN
from fastgae.data.urls import is_remote, opened_binary, version_of

ABOUT = b"fastgae"  # the key, in the metadata of a schema, of what results say about themselves
COPIED = 2**20  # bytes at a time
BEGAN = (1980, 1, 1, 0, 0, 0)  # the time of every member, so that the same results are the same bytes


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    if is_remote(path):
        with reading(path):
            yield
        return
    try:
        # NumPy warns about headers from Python 2, and Python's parser about the literals in them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except FILE_ERRORS as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from error


class Mapped:
    """An array in a file. It is mapped anew for every read, because pages of a mapping count as memory once touched."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], mapped: Callable[[], Array]) -> None:
        self.shape, self.dtype = shape, dtype
        self._mapped = mapped

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        return self._mapped()[rows]


def _in_scratch(header: Header, opened: Callable[[], AbstractContextManager[IO[bytes]]], until: ExitStack) -> Mapped:
    """Return an array that is copied to a scratch file when the first of its numbers is read."""

    @cache
    def scratch() -> IO[bytes]:
        file = until.enter_context(scratch_file())
        with opened() as content:
            shutil.copyfileobj(content, file, COPIED)
            file.flush()
        return file

    def mapped() -> Array:
        if 0 in header.shape:
            return np.empty(header.shape, header.dtype)
        order: Literal["C", "F"] = "F" if header.fortran_order else "C"
        return np.memmap(scratch(), header.dtype, "r", header.begin, header.shape, order)

    return Mapped(header.shape, header.dtype, mapped)


class NpzFile(dict[str, Mapped]):
    """The arrays of an .npz file by their names. A fault of an array raises an error only when that array is read."""

    def __init__(self, path: Path) -> None:
        self._path, self._faults = path, dict[str, ValueError]()
        with _reading(path), ExitStack() as stack:
            file = stack.enter_context(opened_binary(path, "readahead"))
            check_kind(file)
            archive = stack.enter_context(zipfile.ZipFile(file))
            copies = stack.enter_context(ExitStack())
            for name, member in named_members(archive).items():
                try:
                    header = checked_header(archive, name, member)
                    self[name] = _in_scratch(header, partial(_opened, path, partial(archive.open, member)), copies)
                except ValueError as error:
                    self._faults[name] = error
            self.close = stack.pop_all().close

    def __contains__(self, name: object) -> bool:
        return name in self._faults or super().__contains__(name)

    def __missing__(self, name: str) -> Mapped:
        fault = self._faults[name]
        raise DataError(f"{self._path} cannot be read: {fault}") from fault


class NpyFolder(dict[str, Mapped]):
    """The arrays of the .npy files in a folder by the names of the files."""

    def __init__(self, path: Path) -> None:
        for file in npy_files(path):
            self[file.stem] = npy_array(file)

    def close(self) -> None:
        self.clear()


def npy_array(path: Path) -> Mapped:
    """Return the array of an .npy file, of which a file behind a URL is copied at the first read."""
    with _reading(path):
        kind_of(path)  # raises if it is a pipe or a folder
        if is_remote(path):
            opened = partial(opened_binary, path, "readahead")
            with opened() as file:
                header = header_in(file, path.name, version_of(path)[0])
            return _in_scratch(header, partial(_opened, path, opened), until_end())
        mapped = mapped_npy(path)
        return Mapped(mapped.shape, mapped.dtype, partial(_npy, path))


def _npy(path: Path) -> Array:
    with _reading(path):
        return mapped_npy(path)


@contextmanager
def _opened(path: Path, opened: Callable[[], IO[bytes]]) -> Iterator[IO[bytes]]:
    """Open a part of a file, and name the file in errors."""
    with _reading(path), opened() as content:
        yield content


def npy_files(path: Path) -> list[Path]:
    """Return the .npy files in the folder of one of them, or in a folder."""
    folder = path if path.is_dir() else path.parent
    return sorted(each for each in folder.iterdir() if by_suffix(each) == NPY and not each.name.startswith(HIDDEN))


class NpzWriter:
    """Write tables, one after the other, into an .npz file with an array for each column.

    The numbers wait beside it in a file for each column, because a member of the archive begins with its shape.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._rows, self._about = file, 0, b""
        # For each column a file with its numbers, and no rows of it: its dtype and the shape of a row.
        self._columns: dict[str, tuple[IO[bytes], Array]] = {}
        self._open = ExitStack()

    def __enter__(self) -> "NpzWriter":
        return self

    def write_table(self, table: pa.Table) -> None:
        for name, column in zip(table.column_names, table.columns, strict=True):
            array = arrays_of(column)
            if not isinstance(array, np.ndarray) or array.dtype.kind not in NUMBERS:
                raise DataError(
                    f"an .npz file holds only numbers, but {name} is {column.type}: let {argument('out')} end in "
                    ".parquet"
                )
            if name not in self._columns:
                self._columns[name] = self._open.enter_context(scratch_file()), array[:0]
            self._columns[name][0].write(np.ascontiguousarray(array).data)
        self._rows += len(table)

    def add_key_value_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        self._about = metadata[ABOUT]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self._write_archive()

    def _write_archive(self) -> None:
        with zipfile.ZipFile(self._file, "w") as archive:
            archive.comment = self._about
            for name, (numbers, first) in self._columns.items():
                with new_member(archive, f"{name}.npy") as member:
                    shape = (self._rows, *first.shape[1:])
                    header = {"descr": npy.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
                    npy.write_array_header_1_0(member, header)
                    numbers.seek(0)
                    shutil.copyfileobj(numbers, member, COPIED)


def new_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zipfile.ZipInfo(name, BEGAN), "w", force_zip64=True)


def npz_about(path: Path) -> bytes:
    """Return the comment of an .npz file, which is the metadata about the run."""
    with _reading(path), opened_binary(path, "readahead") as file, zipfile.ZipFile(file) as archive:
        return archive.comment
