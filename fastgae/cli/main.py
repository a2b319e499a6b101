"""``fastgae COMMAND``: parse the arguments, run the command, and turn errors into messages and exit statuses."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import fastgae
from fastgae.cli import compute, demo, diagnose, info
from fastgae.cli.options import CommandError, Formatter

EXAMPLES = """\
examples:
  fastgae info                                    what runs here, and what is missing
  fastgae demo                                    a real rollout, computed on every backend
  fastgae demo --env Pendulum-v1 --num-steps 256 --plot pendulum.png
  fastgae compute episodes.parquet                advantages of recorded data, in a file beside it
  fastgae diagnose rollout.npz                    mistakes that a recorded rollout shows traces of

`python -m fastgae` is the same command where `fastgae` is not on the PATH.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line that names the option, without the usage, which would push it off the screen."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = _Parser(
        prog="fastgae",
        description="Advantages and value targets from reinforcement-learning rollouts.",
        epilog=EXAMPLES,
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"fastgae {fastgae.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    info.add_parser(commands)
    compute.add_parser(commands)
    demo.add_parser(commands)
    diagnose.add_parser(commands)
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(f"fastgae {args.command}: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"fastgae {args.command}: interrupted{getattr(args, 'interrupted', '')}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of stdout has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports the closed pipe at exit
        return 141
