"""``fastgae diagnose``: look for traces of mistakes in a recorded rollout."""

import argparse
import inspect
import json
import textwrap
from pathlib import Path
from typing import get_args

import fastgae
from fastgae._call import ROLES, Role
from fastgae._engine import dispatch
from fastgae._support.archive import shown
from fastgae._typing import Autoreset, Normalize
from fastgae.cli import compute
from fastgae.cli.archive import read_arrays
from fastgae.cli.options import CommandError, printable, unit_interval

PARAMETERS = inspect.signature(fastgae.diagnose).parameters
REQUIRED = tuple(name for name, parameter in PARAMETERS.items() if parameter.default is parameter.empty)
COEFFICIENTS = tuple(name for name in PARAMETERS if ROLES[name] is Role.COEFFICIENT)
ARRAYS = tuple(
    name for name in PARAMETERS if ROLES[name] is not Role.SETTING and name not in (*REQUIRED, *COEFFICIENTS)
)
SETTINGS = ("autoreset", "normalize", "tail_normalized", "carry_over", "time_axis")

HELP = "look for mistakes in a recorded rollout"

DESCRIPTION = f"""\
Look for common mistakes in a rollout: flags one step late or early, time limits
flagged as terminations, reset rows that count as steps, a missing bootstrap,
swapped axes and more.

SOURCE is recorded data, with the options of `fastgae compute`; then their last
steps are examined. Or it is a file .npz, which holds the arguments of
fastgae.gae by their names:
  {", ".join(REQUIRED)}, and, if you pass them to gae,
{textwrap.fill(", ".join(ARRAYS + COEFFICIENTS), 76, initial_indent="  ", subsequent_indent="  ")}.
Write it with numpy.savez. Other arrays in it are not read. All else that you
pass to gae, such as autoreset, is an option.

The report ends with an overview: the episodes, and how well the values fit.

The exit status is 0 if nothing was found, 1 if something was found, and 2 if
the data or an option cannot be used.
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
    add("--gamma", type=unit_interval, metavar="G", help="discount per step (default: the file's, or 0.99)")
    add("--gae-lambda", type=unit_interval, metavar="L", help="trace decay (default: the file's, or 0.95)")
    add("--returns-lambda", type=unit_interval, metavar="L", help="another lambda for the returns")
    add("--autoreset", choices=get_args(Autoreset), help="how the environments start a new episode")
    add(
        "--normalize",
        choices=get_args(Normalize),
        help="normalise the advantages over all steps, or over each environment",
    )
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
    return 1 if found else 0


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
        arguments, unused = read_arrays(path, REQUIRED, ARRAYS + COEFFICIENTS)
        for name in unused:
            if name in PARAMETERS and getattr(args, name) == PARAMETERS[name].default:
                option = name.replace("_", "-")
                raise CommandError(f"{path} holds {name}, which is an option here: pass --{option}", exit_code=2)
        for name in COEFFICIENTS:
            if getattr(args, name) is not None:
                arguments[name] = getattr(args, name)
        how = {name: getattr(args, name) for name in SETTINGS}
        return fastgae.diagnose(**arguments, **how), [name for name in unused if name not in PARAMETERS]
    except MemoryError as error:
        raise CommandError(f"{path}: there is not enough memory; save fewer steps or environments", 2) from error
    except (ValueError, TypeError) as error:
        raise CommandError(f"{path}: gae refuses these arguments: {error}", exit_code=2) from error
