"""Read the arrays of an .npz file that may be broken or malicious.

The zip's directory and every member's header are checked before any array is inflated, so that a file cannot ask for
more memory than there is. Nothing in the file is executed, because pickled objects are refused.
"""

import contextlib
import math
import os
import stat
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from fastgae.cli.options import CommandError

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
FILE_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
# The compression methods that NumPy writes. Others would bring their own decompressors and their own errors.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Version 3 of the header is for names of fields, which no array of numbers has.
HEADERS: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LONGEST_HEADER = 4096  # NumPy writes 128 bytes for most arrays, and some 1,500 for 64 dimensions of the largest size
LONGEST_REASON = 800  # zipfile's errors quote names from the file, of up to 64 KiB each
# Detectors compute in float64 and take some 100 bytes per step, and a step has three elements or more.
BYTES_PER_ELEMENT = 64


def read_arrays(path: Path, required: Collection[str], optional: Collection[str]) -> dict[str, Any]:
    """Return the arrays in the file by their names, or raise a CommandError that says what is wrong with the file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is no regular file; expected an archive that numpy.savez wrote")
        # NumPy warns about headers from Python 2, and Python's parser about the literals in them.
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_kind(file)
            with zipfile.ZipFile(file) as archive:
                members = named_members(archive)
                check_names(members, required, optional)
                check_memory(sum(checked_size(archive, name, member) for name, member in members.items()))
                return {name: array(archive, member) for name, member in members.items()}
    except FILE_ERRORS as error:
        raise CommandError(f"cannot read {path}: {reason(error)[:LONGEST_REASON]}", exit_code=2) from error


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
        raise ValueError("it is no .npz archive, or not all of one; write it with numpy.savez")


def named_members(archive: zipfile.ZipFile) -> Members:
    members: Members = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"it holds {shown([name])} twice")
        members[name] = member
    return members


def check_names(names: Collection[str], required: Collection[str], optional: Collection[str]) -> None:
    missing = [name for name in required if name not in names]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}; it holds {shown(names) or 'nothing'}")
    known = (*required, *optional)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"it holds {shown(unknown)}, which is no argument; known are {', '.join(known)}")


def shown(names: Iterable[str], most: int = 12, longest: int = 40) -> str:
    """Return the beginnings of the first names, for a message; CommandError escapes their control characters."""
    cut = [name if len(name) <= longest else f"{name[:longest]}..." for name in names]
    return ", ".join(cut[:most]) + (f" and {len(cut) - most:,} more" if len(cut) > most else "")


def checked_size(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> int:
    """Return how many elements the array has; raise if its header and the zip's directory disagree."""
    if member.flag_bits & 1:
        raise ValueError(f"{name} is encrypted; expected what numpy.savez writes")
    if member.compress_type not in METHODS:
        raise ValueError(f"{name} is compressed by method {member.compress_type}; expected what numpy.savez writes")
    with archive.open(member) as content:
        try:
            shape, _, dtype = HEADERS[npy.read_magic(content)](content, max_header_size=LONGEST_HEADER)
        except HEADER_ERRORS as error:
            raise ValueError(f"{name} has no header of an array of numbers; write it with numpy.savez") from error
        size = member.file_size - content.tell()
    if not all(type(length) is int for length in shape):
        raise ValueError(f"{name} has no header of an array of numbers; write it with numpy.savez")
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers or bool, got dtype {str(dtype)[:40]}")
    elements: int = math.prod(shape)
    if min(shape, default=0) < 0 or elements * dtype.itemsize != size:
        raise ValueError(f"{name} has {size:,} bytes, which is not what its header says")
    return elements


def check_memory(elements: int) -> None:
    needed, there_is = elements * BYTES_PER_ELEMENT, memory()
    if needed > there_is:
        raise ValueError(
            f"its arrays have {elements:,} elements, and looking at them takes {needed / 2**30:.1f} GiB of memory, "
            f"where there are {there_is / 2**30:.1f}; save fewer steps or environments: a part shows the same mistakes"
        )


def memory() -> int:
    """Return the bytes of memory of this machine or container, or 4 GiB if the system does not say."""
    limits = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max" in place of a number
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits, default=4 * 2**30)


def array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, np.dtype[Any]]:
    with archive.open(member) as content:
        read: np.ndarray[Any, np.dtype[Any]] = npy.read_array(content, allow_pickle=False)
        return read
