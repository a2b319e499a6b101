"""``fastgae diagnose``: look for traces of mistakes in a recorded rollout."""

import argparse
import inspect
import json
import math
import stat
import textwrap
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args

from numpy.lib import format as npy

import fastgae
from fastgae._call import ROLES, Role
from fastgae._engine import dispatch
from fastgae._support.archive import FILE_ERRORS, check_kind, checked_header, named_members, reason, shown
from fastgae._support.memory import usable_memory
from fastgae._support.misnamed import NAMES_ELSEWHERE
from fastgae._typing import Autoreset, Normalize
from fastgae.cli import compute
from fastgae.cli.options import CommandError, printable, unit_interval

PARAMETERS = inspect.signature(fastgae.diagnose).parameters
REQUIRED = tuple(name for name, parameter in PARAMETERS.items() if parameter.default is parameter.empty)
COEFFICIENTS = tuple(name for name in PARAMETERS if ROLES[name] is Role.COEFFICIENT)
ARRAYS = tuple(
    name for name in PARAMETERS if ROLES[name] is not Role.SETTING and name not in (*REQUIRED, *COEFFICIENTS)
)
READ = REQUIRED + ARRAYS + COEFFICIENTS
SETTINGS = ("autoreset", "normalize", "tail_normalized", "carry_over", "time_axis")

LONGEST_REASON = 800  # zipfile's errors quote names from the file, of up to 64 KiB each
# Detectors compute in float64 and take some 100 bytes per step, and a step has three elements or more.
BYTES_PER_ELEMENT = 64

HELP = "look for mistakes in a recorded rollout"

DESCRIPTION = f"""\
Look for common mistakes in a rollout: flags one step late or early, time limits
flagged as terminations, reset rows that count as steps, a missing bootstrap,
swapped axes and more.

SOURCE is recorded data, with the options of `fastgae compute`; then up to
65,536 of their last steps are examined, and t is the row in the data. Or it is
a file .npz, which holds the arguments of fastgae.gae by their names:
  {", ".join(REQUIRED)}, and, if you pass them to gae,
{textwrap.fill(", ".join(ARRAYS + COEFFICIENTS), 76, initial_indent="  ", subsequent_indent="  ")}.
Write it with numpy.savez. Other arrays in it are not read. All else that you
pass to gae, such as autoreset, is an option.

The report ends with an overview: the episodes, and how well the values fit.

The exit status is 0 if nothing was found but what --allow names, 1 if something
else was found, and 2 if the data or an option cannot be used.
"""

EXAMPLES = """\
examples:
  fastgae diagnose rollout.npz
  fastgae diagnose rollout.npz --autoreset next_step --gamma 0.997
  fastgae diagnose rollout.npz --time-axis 1 --json
  fastgae diagnose episodes.parquet --column episode=run --ends terminated

  python -c "import numpy; numpy.savez('rollout.npz', rewards=..., values=..., terminated=..., last_values=...)"
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    compute.add_source(parser)
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON object")
    about = "an intended finding, such as truncation_as_termination: it is printed, but the exit status ignores it"
    add("--allow", action="append", default=[], metavar="NAME", help=about)
    add("--gamma", type=unit_interval, metavar="G", help="discount per step (default: the file's, or 0.99)")
    add("--gae-lambda", type=unit_interval, metavar="L", help="trace decay (default: the file's, or 0.95)")
    add("--returns-lambda", type=unit_interval, metavar="L", help="another lambda for the returns")
    add("--autoreset", choices=get_args(Autoreset), help="how the environments start a new episode")
    about = "normalise the advantages over all steps, or over each environment"
    add("--normalize", choices=get_args(Normalize), help=about)
    add("--tail-normalized", action="store_true", help="the average of the k-step advantages, as in gae")
    add("--carry-over", action="store_true", help="outside of the mask, A is that of the next step, as in gae")
    add("--time-axis", default=0, type=int, metavar="AXIS", help="the axis that is time (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    found, unused = of_rollout(args) if is_rollout(args) else (of_data(args), [])
    if args.json:
        print(json.dumps({**found.as_dict(), "unused": unused}, indent=2))
    else:
        print(found)
        if unused:
            print(f"\nNot used, because they are not arguments: {printable(shown(unused))}")
    return int(any(finding.detector not in args.allow for finding in found))


def is_rollout(args: argparse.Namespace) -> bool:
    """Return whether the source holds arguments of gae: it is one .npz file, and no option says how to read data."""
    source, *others = args.source
    is_pattern = any(each in source for each in "*?[") and not Path(source).exists()
    alone = not others and source.endswith(".npz") and not is_pattern
    return alone and all(getattr(args, name) == default for name, default in compute.DEFAULTS.items())


def of_data(args: argparse.Namespace) -> fastgae.Diagnosis:
    for name in (*SETTINGS, "returns_lambda"):
        if getattr(args, name) != PARAMETERS[name].default:
            raise CommandError(f"--{name.replace('_', '-')} is for a rollout in a file .npz: leave it out", exit_code=2)
    try:
        from fastgae.data.compute import diagnose
        from fastgae.data.errors import on_the_command_line

        with on_the_command_line():
            gamma = 0.99 if args.gamma is None else args.gamma
            return diagnose(args.source, **compute.of_source(args), gamma=gamma, gae_lambda=args.gae_lambda)
    except (ValueError, OSError, ImportError, fastgae.BackendUnavailableError) as error:
        raise CommandError(str(error), exit_code=2) from error


def of_rollout(args: argparse.Namespace) -> tuple[fastgae.Diagnosis, list[str]]:
    path = Path(args.source[0])
    try:
        dispatch.recycle()
    except ValueError as error:  # of the environment, and not of the file
        raise CommandError(str(error), exit_code=2) from error
    try:
        arguments, unused = read_arrays(path)
        for name in unused:
            if name in PARAMETERS and getattr(args, name) == PARAMETERS[name].default:
                option = f"--{name.replace('_', '-')}"
                advice = f"which is an option here: pass {option}, or leave it out of the file"  # if it is the default
                raise CommandError(f"{path} holds {name}, {advice}", exit_code=2)
        for name in COEFFICIENTS:
            if getattr(args, name) is not None:
                arguments[name] = getattr(args, name)
        how = {name: getattr(args, name) for name in SETTINGS}
        return fastgae.diagnose(**arguments, **how), [name for name in unused if name not in PARAMETERS]
    except MemoryError as error:
        raise CommandError(f"{path}: there is not enough memory; save fewer steps or environments", 2) from error
    except (ValueError, TypeError) as error:
        raise CommandError(f"{path}: gae refuses these arguments: {error}", exit_code=2) from error


def read_arrays(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments in an .npz file by their names, and the names of other arrays in it, which are not read.

    The file may be broken or malicious. The zip's directory and every member's header are checked before any array is
    inflated, so that a file cannot ask for more memory than there is. Nothing in the file is executed, because pickled
    objects are refused. Raise a CommandError that says what is wrong with the file.
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
                check_names(members)
                used = {name: member for name, member in members.items() if name in READ}
                check_memory(sum(math.prod(checked_header(archive, *each).shape) for each in used.items()))
                arrays = {}
                for name, member in used.items():
                    with archive.open(member) as content:
                        arrays[name] = npy.read_array(content, allow_pickle=False)
                return arrays, [name for name in members if name not in used]
    except FILE_ERRORS as error:
        raise CommandError(f"cannot read {path}: {reason(error)[:LONGEST_REASON]}", exit_code=2) from error


def check_names(names: Collection[str]) -> None:
    """Raise where an array is missing, or is in the file by the name that another library has for it."""
    for argument in READ:
        elsewhere = [name for name in NAMES_ELSEWHERE.get(argument, "").split() if name in names]
        if elsewhere and argument not in names:
            raise ValueError(f"it holds {elsewhere[0]} and no {argument}: save the array that gae takes as {argument}")
    if missing := [name for name in REQUIRED if name not in names]:
        # Only recorded data may have columns of other names, and then last_values would not be read.
        way = "" if "last_values" in names else f"; of recorded data, pass --column {missing[0]}=NAME"
        raise ValueError(f"it has no {' and no '.join(missing)}; it holds {shown(names) or 'nothing'}{way}")


def check_memory(elements: int) -> None:
    needed, there_is = elements * BYTES_PER_ELEMENT, usable_memory()
    if needed > there_is:
        raise ValueError(
            f"its arrays have {elements:,} elements, and diagnose needs {needed / 2**30:.1f} GiB of memory for them, "
            f"but there are only {there_is / 2**30:.1f} GiB; save fewer steps or environments: a part shows the same "
            "mistakes"
        )
