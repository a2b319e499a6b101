"""``fastgae COMMAND``: parse the arguments, run the command, and turn errors into messages and exit statuses."""

import argparse
import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import fastgae
from fastgae._engine import dispatch
from fastgae._support.misnamed import COLUMN_ROLES, NAMES_ELSEWHERE, choose_one, closest, elsewhere
from fastgae._support.project import how_to_install
from fastgae.cli import compute, demo, diagnose, info
from fastgae.cli.options import CommandError

EXAMPLES = """\
examples:
  fastgae info                                    which backends run here, and which are missing
  fastgae demo                                    a real rollout, computed on every backend
  fastgae demo --env Pendulum-v1 --num-steps 256 --plot pendulum.png
  fastgae compute episodes.parquet                advantages of recorded data, in a file beside it
  fastgae diagnose rollout.npz                    traces of mistakes in a recorded rollout
  fastgae --print-completion bash > ~/.local/share/bash-completion/completions/fastgae

If `fastgae` is not on the PATH, `python -m fastgae` is the same command.
"""

COMMANDS = {"info": info, "compute": compute, "demo": demo, "diagnose": diagnose}
# Options that only functions have.
VARIABLES = {
    "; set FASTGAE_NUM_THREADS": "threads num_threads n_threads n_jobs workers",
    "; set FASTGAE_BACKEND": "backend device",
}
NAMES = NAMES_ELSEWHERE | {"env": "game env_id environment gym"}
# What a word without an option may stand for.
WORDS = {
    "fastgae demo": "; do you mean '--env {}'?",
    "fastgae info": "; it lists every backend, and FASTGAE_BACKEND={} chooses one for a program",
}
COMMANDS_ELSEWHERE = {"'compute'": "gae advantages label", "'diagnose'": "check lint debug", "'info'": "backends"}
SHELLS = ("bash", "zsh", "tcsh")

# What a shell completes in place of an argument that is a file: shtab reads it from the attribute `complete`.
FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


class PrintCompletion(argparse.Action):
    """Print the script for a shell, and end the command."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            import shtab
        except Exception as error:  # one that is broken may raise any exception
            parser.error(f"argument {option}: {dispatch.why(error)}: run {how_to_install('completion')}")
        _complete_files(parser)
        print(shtab.complete(parser, values))
        parser.exit()


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments of all commands whose help shows a file."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in set(action.choices.values()):
                _complete_files(command)
        elif any(word in str(action.metavar) for word in ("FILE", "SOURCE", "PICTURE", "COPY")):
            action.complete = FILES  # type: ignore[attr-defined]


class _Parser(argparse.ArgumentParser):
    def __init__(self, **about: Any) -> None:
        # No abbreviations: --end may be meant for --ends, or for an option of a later version.
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **about)
        # From Python 3.15 on, argparse guesses too, but knows no words of others.
        self.suggest_on_error = False

    def error(self, message: str) -> NoReturn:
        """Print one line that names the option, without the usage, which would push it off the screen."""
        if refused := re.search(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
            names = COMMANDS_ELSEWHERE if message.startswith("argument COMMAND") else {}
            message += choose_one(refused[1], re.findall(r"[\w-]+", refused[2]), names)
        if "arguments are required" in message and (
            example := re.search(r"fastgae .*?(?=  |$)", self.epilog or "", re.M)
        ):
            message += f", as in `{example[0]}`"
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say which option the first unknown one may stand for."""
        given = next((each for each in unknown if each.startswith("-")), unknown[0]).partition("=")[0]
        known = re.findall(r"--[\w-]+", self.format_help())
        options = [word.strip("-").replace("-", "_") for word in known]
        word = given.strip("-").replace("-", "_")
        similar = [each for each in options if word and (each.startswith(word) or each.endswith(f"_{word}"))]
        columns = {
            f"column {each}=NAME": f"{each} {NAMES.get(each, '')}" for each in COLUMN_ROLES if "column" in options
        }
        meant = elsewhere(word, {each: NAMES.get(each, "") for each in options}) or closest(word, options)
        meant = meant or elsewhere(word, columns) or min(similar, key=len, default=None)
        if given in known:
            advice = f"; put it behind '{self.prog}'"
        elif meant:
            advice = f"; do you mean '--{meant.replace('_', '-')}'?"
        else:
            alone = not given.startswith("-") and WORDS.get(self.prog, "").format(given)
            advice = alone or elsewhere(word, VARIABLES) or ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{advice}")


def main(argv: Sequence[str] | None = None) -> int:
    with suppress(AttributeError):  # None, or an object that stands for stdout
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        try:
            return _command(argv)
        finally:
            if sys.stdout is not None:  # it is None where the caller has closed it
                sys.stdout.flush()  # so that an error of stdout, after --help too, is raised here and not at exit
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports the error again at exit
        if error.errno == errno.EPIPE:  # the reader of stdout has closed it, as `head` does
            return 141
        print(f"fastgae: cannot write to stdout: {error.strerror}", file=sys.stderr)
        return 1


def _command(argv: Sequence[str] | None) -> int:
    parser, commands = _parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        commands.get(args.command, parser).refuse(unknown)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    path = sys.path[:]
    try:
        return int(args.run(args))
    except CommandError as error:
        print(f"fastgae {args.command}: error: {error}", file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        print(f"fastgae {args.command}: error: there is not enough memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print("; ".join([f"fastgae {args.command}: interrupted", *map(str, error.args)]), file=sys.stderr)
        return 130
    finally:
        sys.path[:] = path


def _parser() -> tuple[_Parser, dict[str, _Parser]]:
    """Return the parser, and the parser of each command."""
    parser = _Parser(
        prog="fastgae",
        description="Advantages and value targets from reinforcement-learning rollouts.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"fastgae {fastgae.__version__}")
    about = f"print a script that completes this command in {', '.join(SHELLS)}"
    parser.add_argument("--print-completion", action=PrintCompletion, choices=SHELLS, metavar="SHELL", help=about)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        texts = {"help": command.HELP, "description": command.DESCRIPTION, "epilog": command.EXAMPLES}
        of_command = commands.add_parser(name, **texts)
        command.add_options(of_command)
        of_command.set_defaults(run=command.run)
    return parser, dict(commands.choices)
