"""``fastgae compute``: advantages and value targets of recorded data, in a file beside it."""

import argparse
import importlib
import inspect
import sys
from typing import Any

import fastgae
from fastgae.cli.options import CommandError, amount, plot_file, positive, unit_interval

HELP = "compute advantages of recorded data in files"

DESCRIPTION = """\
Compute advantages and value targets of recorded episodes, and write them to a
file beside the data: one row for each step, with the columns that name the
episode and the step. fastgae never writes to the data themselves. They may be
larger than memory.

SOURCE is a file, a folder or a pattern: tables of Parquet, Arrow, Delta, CSV or
JSON, arrays in HDF5, .npz or .npy files, or a LeRobot, Minari, robomimic or D4RL
dataset. All files may be URLs, such as s3://bucket/episodes.parquet.

The exit status is 0 if the results were written, 2 if the data or an option
cannot be used, and 130 after Ctrl-C.
"""

EXAMPLES = """\
examples:
  fastgae compute episodes.parquet --ends terminated
      a table with the columns episode, rewards and values, whose episodes all end for good
  fastgae compute 'runs/*.parquet' -o advantages.parquet --column rewards=reward --column episode=run
      several files, with other names of columns
  fastgae compute lerobot_dataset --values critic.npy
      a dataset, and the values of its states in a file of their own

docs/data.md has more: critics, Minari, URLs, labels, and runs that were killed.
"""


def column(text: str) -> tuple[str, str | None]:
    role, separator, name = text.partition("=")
    if not (role and separator):
        raise argparse.ArgumentTypeError(f"expected ROLE=NAME, such as rewards=next.reward, got {text!r}")
    return role, name or None


def critic(text: str) -> tuple[str, str]:
    module, _, name = text.partition(":")
    if not (module and name):
        raise argparse.ArgumentTypeError(f"expected MODULE:NAME, such as my_critic:values, got {text!r}")
    return module, name


def loaded(critic: tuple[str, str]) -> Any:
    """Return what a module of the current folder, or an installed one, has by a name."""
    from fastgae.data import Critic

    module, name = critic
    sys.path.insert(0, "")  # the current folder, also for what the critic imports when it is called; main() removes it
    try:
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, Critic) else Critic(found)
    except (ImportError, AttributeError, TypeError) as error:
        raise CommandError(f"--critic {module}:{name} cannot be loaded: {error}", exit_code=2) from error


# The options that say how recorded data are read, and what they are where they are not given.
DEFAULTS: dict[str, Any] = dict.fromkeys(("episode_is", "critic", "ends", "rewards"))
DEFAULTS |= {"format": "auto", "columns": [], "values": "values"}


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add what says how recorded data are read, for every command that reads them."""
    add = parser.add_argument
    add("source", nargs="+", metavar="SOURCE", help="files, folders or patterns")
    add("--format", metavar="NAME", help="the format of the data (default: found from the files)")
    about = "which column has a role, such as rewards or episode; ROLE= if none has it"
    add("--column", dest="columns", action="append", type=column, metavar="ROLE=NAME", help=about)
    of_values = parser.add_mutually_exclusive_group().add_argument
    of_values("--values", metavar="COLUMN|FILE", help="the column or the file of V (default: the format's column)")
    about = "the file, with the folders around it, is a part of an episode's name"
    add("--episode", dest="episode_is", choices=("file",), help=about)
    about = "in place of --values: a function of batches of rows, or a fastgae.data.Critic, in a Python module"
    of_values("--critic", type=critic, metavar="MODULE:NAME", help=about)
    add("--ends", choices=("terminated",), help="every episode ends for good, whatever its flags say")
    about = "rewards from success: success:-1:100 is -1 a step, but 0 at success and -100 at failure"
    add("--rewards", metavar="COLUMN:STEP:FAILURE", help=about)
    about = "about how much memory to use beside Python and its libraries, such as 256MB (default: %(default)s)"
    add("--memory", default="1GB", type=amount, metavar="AMOUNT", help=about)
    parser.set_defaults(**DEFAULTS)


def of_source(args: argparse.Namespace) -> dict[str, Any]:
    """Return these options as the arguments of functions of ``fastgae.data``."""
    roles = [role for role, _ in args.columns]
    for role in roles:
        if roles.count(role) > 1:
            raise CommandError(f"--column {role}=NAME is given {roles.count(role)} times: pass it once", exit_code=2)
    values = args.values if args.critic is None else loaded(args.critic)
    given = {name: getattr(args, name) for name in ("format", "ends", "episode_is", "rewards", "memory")}
    return {**given, "columns": dict(args.columns), "values": values}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add = parser.add_argument
    add("-o", "--out", metavar="FILE", help="the file to write (default: beside the data)")
    add("--gamma", default=0.99, type=unit_interval, metavar="G", help="discount per step (default: %(default)s)")
    names = "gae, n_step_returns or discounted_returns"
    add("--estimator", default="gae", metavar="NAME", help=f"{names} (default: %(default)s)")
    add("--gae-lambda", type=unit_interval, metavar="L", help="trace decay of gae (default: 0.95)")
    add("--n", type=positive, metavar="N", help="number of rewards in each return of n_step_returns")
    about = "shift and scale the advantages to mean 0 and standard deviation 1 over all data"
    add("--normalize", choices=("global",), help=about)
    about = 'also write a column "positive": is the advantage above this quantile of all advantages?'
    add("--label-quantile", type=float, metavar="Q", help=about)
    add("--label-per", metavar="COLUMN", help="take that quantile over the rows of each item, such as each task_index")
    add("--into", metavar="COPY", help="in place of FILE: all columns of the data, and the results beside them")
    about = "draw advantages, episode lengths, and returns against values: .png, .pdf or .svg"
    add("--plot", type=plot_file, metavar="PICTURE", help=about)
    about = "keep finished results, and continue from the rows that an interrupted run has computed"
    add("--resume", action="store_true", help=about)
    add("--overwrite", action="store_true", help="replace earlier results, once the new ones are whole, and PICTURE")
    add("--quiet", action="store_true", help="show no progress and no table")
    add("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    try:
        from fastgae.data import compute
        from fastgae.data.errors import on_the_command_line

        # An option has the name of the argument for which it is.
        given = {**vars(args), **of_source(args), "progress": not args.quiet}
        names = given.keys() & inspect.signature(compute).parameters
        with on_the_command_line():
            report = compute(**{name: given[name] for name in names})
    except (ValueError, OSError, ImportError, fastgae.BackendUnavailableError) as error:
        raise CommandError(str(error), exit_code=2) from error
    if args.json:
        print(report.to_json(indent=2))
    elif not args.quiet:
        print(report)
        if report.findings:
            print("`fastgae diagnose` says where in the data, and what to change")
        if args.plot:
            print(f"Plot in {args.plot}")  # drawn now, or with the results that --resume keeps
    return 0
