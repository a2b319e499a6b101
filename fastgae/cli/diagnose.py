"""``fastgae diagnose``: look for traces of mistakes in a recorded rollout."""

import argparse
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING

import fastgae
from fastgae._archive import shown
from fastgae._call import ROLES, Role
from fastgae.cli.archive import read_arrays
from fastgae.cli.options import CommandError, Formatter, printable, unit_interval

if TYPE_CHECKING:
    from fastgae.cli.options import Commands

PARAMETERS = inspect.signature(fastgae.diagnose).parameters
REQUIRED = tuple(name for name, parameter in PARAMETERS.items() if parameter.default is parameter.empty)
COEFFICIENTS = tuple(name for name in PARAMETERS if ROLES[name] is Role.COEFFICIENT)
ARRAYS = tuple(
    name for name in PARAMETERS if ROLES[name] is not Role.SETTING and name not in (*REQUIRED, *COEFFICIENTS)
)
MODES = ("next_step", "same_step", "disabled")

DESCRIPTION = f"""\
Look for common mistakes in a rollout: flags one step late or early, time limits
flagged as terminations, reset rows that count as steps, a missing bootstrap,
swapped axes and more.

FILE.npz holds the arguments of fastgae.gae by their names:
  {", ".join(REQUIRED)}, and, if you pass them to gae,
  {", ".join(ARRAYS)},
  {", ".join(COEFFICIENTS)}. Write it with numpy.savez. It may hold other arrays.

The report begins with an overview: the episodes, and how well the values fit.

The exit status is 0 if nothing was found, 1 if something was found, and 2 if
the file or an option cannot be used.
"""

EXAMPLES = """\
examples:
  fastgae diagnose rollout.npz
  fastgae diagnose rollout.npz --autoreset next_step --gamma 0.997
  fastgae diagnose rollout.npz --time-axis 1 --json

  python -c "import numpy; numpy.savez('rollout.npz', rewards=..., values=..., terminated=..., last_values=...)"
"""


def add_parser(commands: "Commands") -> None:
    parser = commands.add_parser(
        "diagnose",
        help="look for mistakes in a recorded rollout",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=Formatter,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.npz", help="arrays named like the arguments of fastgae.gae")
    add("--json", action="store_true", help="print one JSON object")
    add("--gamma", type=unit_interval, metavar="G", help="discount per step (default: the file's, or 0.99)")
    add("--gae-lambda", type=unit_interval, metavar="L", help="trace decay (default: the file's, or 0.95)")
    add("--autoreset", choices=MODES, help="how the environments start a new episode")
    add(
        "--normalize",
        choices=("global", "per_env"),
        help="normalise the advantages over all steps, or over each environment",
    )
    add("--time-axis", default=0, type=int, metavar="AXIS", help="the axis that is time (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        found, unused = diagnosis(args)
    except MemoryError as error:
        raise CommandError(f"{args.file}: there is not enough memory; save fewer steps or environments", 2) from error
    except (ValueError, TypeError) as error:
        raise CommandError(f"{args.file}: gae refuses these arguments: {error}", exit_code=2) from error
    if args.json:
        print(json.dumps({**found.as_dict(), "unused": unused}, indent=2))
    else:
        print(found)
        if unused:
            print(f"\nNot used, because they are not arguments: {printable(shown(unused))}")
    return 1 if found else 0


def diagnosis(args: argparse.Namespace) -> tuple[fastgae.Diagnosis, list[str]]:
    arguments, unused = read_arrays(args.file, REQUIRED, ARRAYS + COEFFICIENTS)
    for name in unused:
        if name in PARAMETERS and getattr(args, name) is None:
            raise CommandError(f"{args.file} holds {name}, which is an option here: pass --{name}", exit_code=2)
    for name in COEFFICIENTS:
        if getattr(args, name) is not None:
            arguments[name] = getattr(args, name)
    how = {"autoreset": args.autoreset, "normalize": args.normalize, "time_axis": args.time_axis}
    return fastgae.diagnose(**arguments, **how), [name for name in unused if name not in PARAMETERS]
