"""Read the arrays of an .npz file that may be broken or malicious.

The zip's directory and every member's header are checked before any array is inflated, so that a file cannot ask for
more memory than there is. Nothing in the file is executed, because pickled objects are refused.
"""

import math
import stat
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

from fastgae._support.archive import FILE_ERRORS, check_kind, checked_header, named_members, reason, shown
from fastgae._support.memory import usable_memory
from fastgae._support.misnamed import NAMES_ELSEWHERE
from fastgae.cli.options import CommandError

LONGEST_REASON = 800  # zipfile's errors quote names from the file, of up to 64 KiB each
# Detectors compute in float64 and take some 100 bytes per step, and a step has three elements or more.
BYTES_PER_ELEMENT = 64


def read_arrays(path: Path, required: Collection[str], optional: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays in the file by their names, and the names of other arrays in it, which are not read.

    Raise a CommandError that says what is wrong with the file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file; expected an archive that numpy.savez wrote")
        # NumPy warns about headers from Python 2, and Python's parser about the literals in them.
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_kind(file)
            with zipfile.ZipFile(file) as archive:
                members = named_members(archive)
                check_names(members, required, optional)
                used = {name: member for name, member in members.items() if name in (*required, *optional)}
                check_memory(sum(math.prod(checked_header(archive, *each).shape) for each in used.items()))
                arrays = {}
                for name, member in used.items():
                    with archive.open(member) as content:
                        arrays[name] = npy.read_array(content, allow_pickle=False)
                return arrays, [name for name in members if name not in used]
    except FILE_ERRORS as error:
        raise CommandError(f"cannot read {path}: {reason(error)[:LONGEST_REASON]}", exit_code=2) from error


def check_names(names: Collection[str], required: Collection[str], optional: Collection[str]) -> None:
    """Raise where an array is missing, or is in the file by the name that another library has for it."""
    for argument in (*required, *optional):
        elsewhere = [name for name in NAMES_ELSEWHERE.get(argument, "").split() if name in names]
        if elsewhere and argument not in names:
            raise ValueError(f"it holds {elsewhere[0]} and no {argument}: save the array that gae takes as {argument}")
    missing = [name for name in required if name not in names]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}; it holds {shown(names) or 'nothing'}")


def check_memory(elements: int) -> None:
    needed, there_is = elements * BYTES_PER_ELEMENT, usable_memory()
    if needed > there_is:
        raise ValueError(
            f"its arrays have {elements:,} elements, and diagnose needs {needed / 2**30:.1f} GiB of memory for them, "
            f"but there are only {there_is / 2**30:.1f} GiB; save fewer steps or environments: a part shows the same "
            "mistakes"
        )
