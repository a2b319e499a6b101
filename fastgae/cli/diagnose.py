"""``fastgae diagnose``: mistakes that a recorded rollout shows traces of."""

import argparse
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fastgae
from fastgae.cli.options import CommandError, Formatter, unit_interval

if TYPE_CHECKING:
    from fastgae.cli.options import Commands

REQUIRED = ("rewards", "values", "terminated")
ARRAYS = (*REQUIRED, "truncated", "last_values", "next_values", "final_values", "prev_done", "mask")
COEFFICIENTS = ("gamma", "gae_lambda")
MODES = ("next_step", "same_step", "disabled")

DESCRIPTION = f"""\
Look for the mistakes that people make with rollouts: flags a step late or
early, time limits taken for terminations, reset rows taken for steps, a missing
bootstrap, swapped axes and more.

FILE.npz holds the arguments of fastgae.gae by their names:
  {", ".join(REQUIRED)}, and where you pass them to gae
  {", ".join(ARRAYS[3:])},
  {", ".join(COEFFICIENTS)}. Write it with numpy.savez.

The exit status is 0 where nothing was found, 1 where something was, and 2 where
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
    add("--normalize", choices=("global", "per_env"), help="what the advantages are normalised over")
    add("--time-axis", default=0, type=int, metavar="AXIS", help="the axis that is time (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    arguments = read(args.file)
    for name in COEFFICIENTS:
        if getattr(args, name) is not None:
            arguments[name] = getattr(args, name)
    try:
        found = fastgae.diagnose(
            **arguments, autoreset=args.autoreset, normalize=args.normalize, time_axis=args.time_axis
        )
    except (ValueError, TypeError) as error:
        raise CommandError(f"{args.file}: gae refuses these arguments: {error}", exit_code=2) from error
    print(found.to_json(indent=2) if args.json else found)
    return 1 if found else 0


def read(path: Path) -> dict[str, Any]:
    """The arguments in a file. Nothing in it is executed: pickled objects are refused."""
    try:
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise CommandError(f"{path} holds one array: write several by name with numpy.savez", exit_code=2)
            missing = [name for name in REQUIRED if name not in file]
            if missing:
                raise CommandError(
                    f"{path} has no {' and no '.join(missing)}; it holds {', '.join(file.files) or 'nothing'}",
                    exit_code=2,
                )
            unknown = [name for name in file.files if name not in ARRAYS + COEFFICIENTS]
            if unknown:
                raise CommandError(
                    f"{path} holds {', '.join(unknown)}, which is no argument; known are "
                    f"{', '.join(ARRAYS + COEFFICIENTS)}",
                    exit_code=2,
                )
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot read {path}: {reason}", exit_code=2) from error
