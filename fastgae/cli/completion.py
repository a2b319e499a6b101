"""``fastgae --print-completion SHELL``: a script that completes commands, options, choices and files."""

import argparse
from typing import Any

from fastgae._support.project import how_to_install

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
        except ImportError as error:
            parser.error(f"argument {option}: {error}: run {how_to_install('completion')}")
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
