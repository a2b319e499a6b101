"""The parts of an .npz file, which may be broken or malicious, checked before anything in it is decompressed.

Nothing in the file is executed, because pickled objects are refused.
"""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib import format as npy

from fastgae._call import Array

Members: TypeAlias = dict[str, zipfile.ZipInfo]

# Python's parser and NumPy's dtypes raise these for a bad header. tests/corpus looks for more.
HEADER_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    MemoryError,
    RecursionError,
    SyntaxError,
    tokenize.TokenError,
)
# The operating system, zipfile, zlib and NumPy raise these for other faults of a file.
FILE_ERRORS = (OSError, EOFError, ValueError, OverflowError, NotImplementedError, zipfile.BadZipFile, zlib.error)
# The compression methods that NumPy writes. Others would bring their own decompressors and their own errors.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Version 3 of the header is for names of fields, which no array of numbers has.
HEADERS: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LONGEST_HEADER = 4096  # NumPy writes 128 bytes for most arrays, and some 1,500 for 64 dimensions of the largest size
NUMBERS = "biuf"  # the kinds of dtypes that are numbers or flags


class Header(NamedTuple):
    """The header of an array in a member of the archive."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    begin: int  # of the numbers, in bytes from the beginning of the member


def reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:  # it cannot be opened: errors of reading have no file name
        return str(error.strerror)
    if type(error) is ValueError:
        return str(error)
    return f"it is damaged ({str(error) or type(error).__name__})"


def check_kind(file: IO[bytes]) -> None:
    start = file.read(len(npy.MAGIC_PREFIX))
    if not start:
        raise ValueError("it is empty")
    if start == npy.MAGIC_PREFIX:
        raise ValueError("it holds one array; write several by name with numpy.savez")
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not an .npz archive, or only a part of one; write it with numpy.savez")


def mapped_npy(path: Path) -> Array:
    """Return the array of an .npy file, mapped; raise ValueError for every fault of it."""
    with path.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:  # NumPy would advise to load it as a pickle
            raise ValueError("it does not begin as a .npy file does; write it with numpy.save")
    try:
        array: Array = np.load(path, "r", allow_pickle=False, max_header_size=LONGEST_HEADER)
        return array
    except ValueError:
        raise
    except HEADER_ERRORS as error:
        raise ValueError("it has no header of an array; write it with numpy.save") from error


def named_members(archive: zipfile.ZipFile) -> Members:
    members: Members = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"it holds {shown([name])} twice")
        members[name] = member
    return members


def shown(names: Iterable[str], most: int = 12, longest: int = 40) -> str:
    """Return the beginnings of the first names, for a message; CommandError escapes their control characters."""
    cut = [name if len(name) <= longest else f"{name[:longest]}..." for name in names]
    return ", ".join(cut[:most]) + (f" and {len(cut) - most:,} more" if len(cut) > most else "")


def checked_header(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> Header:
    """Return the header of an array; raise if it and the zip's directory disagree."""
    if member.flag_bits & 1:
        raise ValueError(f"{name} is encrypted; expected what numpy.savez writes")
    if member.compress_type not in METHODS:
        raise ValueError(f"{name} is compressed by method {member.compress_type}; expected what numpy.savez writes")
    with archive.open(member) as content:
        return header_in(content, name, member.file_size)


def header_in(content: IO[bytes], name: str, size: int) -> Header:
    """Return the header at the beginning of a file of so many bytes; raise if they disagree."""
    try:
        shape, fortran_order, dtype = HEADERS[npy.read_magic(content)](content, max_header_size=LONGEST_HEADER)
        if not all(type(length) is int for length in shape):
            raise TypeError(f"a length in {shape} is no integer")
    except HEADER_ERRORS as error:
        raise ValueError(f"{name} has no header of an array of numbers; write it with numpy.savez") from error
    begin = content.tell()
    size -= begin
    if dtype.kind not in NUMBERS:
        raise ValueError(f"{name} must hold numbers or bool, got dtype {str(dtype)[:40]}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{name} has {size:,} bytes, which is not what its header says")
    return Header(shape, fortran_order, dtype, begin)
