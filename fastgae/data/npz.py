"""Read .npz and .npy files, which may be larger than memory, broken or malicious; and write .npz files."""

import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
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
from fastgae.data.pieces import close_at_end, scratch_file
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


class Member(Mapped):
    """An array of an .npz file. It is copied to a scratch file when the first of its numbers is read."""

    def __init__(self, header: Header, copy: Callable[[IO[bytes]], None]) -> None:
        super().__init__(header.shape, header.dtype, self._map)
        self._header, self._copy = header, copy

    def _map(self) -> Array:
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        order: Literal["C", "F"] = "F" if self._header.fortran_order else "C"
        return np.memmap(self._scratch, self.dtype, "r", self._header.begin, self.shape, order)

    @cached_property
    def _scratch(self) -> IO[bytes]:
        # The file has no name, so that it vanishes with the array, however this process ends.
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_file())
            self._copy(scratch)
            stack.pop_all()  # it stays open until close()
        return scratch

    def close(self) -> None:
        if "_scratch" in vars(self):
            self._scratch.close()


class NpzFile(Mapping[str, Member]):
    """The arrays of an .npz file by their names. A fault of an array raises an error only when that array is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _reading(path), ExitStack() as stack:
            file = stack.enter_context(opened_binary(path, "readahead"))
            check_kind(file)
            self._archive = stack.enter_context(zipfile.ZipFile(file))
            self._members = named_members(self._archive)
            self._arrays = {name: self._array(name) for name in self._members}
            for array in self._arrays.values():
                if isinstance(array, Member):
                    stack.callback(array.close)
            self.close = stack.pop_all().close

    def _array(self, name: str) -> Member | ValueError:
        try:
            return Member(checked_header(self._archive, name, self._members[name]), partial(self._copy, name))
        except ValueError as error:
            return error

    def _copy(self, name: str, to: IO[bytes]) -> None:
        with _reading(self._path), self._archive.open(self._members[name]) as content:
            shutil.copyfileobj(content, to, COPIED)
            to.flush()

    def __getitem__(self, name: str) -> Member:
        array = self._arrays[name]
        if isinstance(array, ValueError):
            raise DataError(f"{self._path} cannot be read: {array}") from array
        return array

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return (name for name, array in self._arrays.items() if isinstance(array, Member))

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
            with opened_binary(path, "readahead") as file:
                array = Member(header_in(file, path.name, version_of(path)[0]), partial(_copy_of, path))
            close_at_end(array.close)
            return array
        mapped = mapped_npy(path)
        return Mapped(mapped.shape, mapped.dtype, partial(_npy, path))


def _npy(path: Path) -> Array:
    with _reading(path):
        return mapped_npy(path)


def _copy_of(path: Path, to: IO[bytes]) -> None:
    with reading(path), opened_binary(path, "readahead") as content:
        shutil.copyfileobj(content, to, COPIED)
        to.flush()


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
                with archive.open(zipfile.ZipInfo(f"{name}.npy", BEGAN), "w", force_zip64=True) as member:
                    shape = (self._rows, *first.shape[1:])
                    header = {"descr": npy.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
                    npy.write_array_header_1_0(member, header)
                    numbers.seek(0)
                    shutil.copyfileobj(numbers, member, COPIED)


def npz_about(path: Path) -> bytes:
    """Return the comment of an .npz file, which is the metadata about the run."""
    with _reading(path), opened_binary(path, "readahead") as file, zipfile.ZipFile(file) as archive:
        return archive.comment
