"""Check the options of the commands."""

import argparse
from functools import partial
from pathlib import Path

from fastgae._support.memory import amount_of
from fastgae._support.pictures import picture_path


class CommandError(Exception):
    """End the command with one line on stderr and this exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(" ".join(message.split())))
        self.exit_code = exit_code


def printable(line: str) -> str:
    """Escape control characters, because those in a file's name, or in names in the file, would steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _integer(least: int, expected: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return number


positive = partial(_integer, 1, "a positive integer")
non_negative = partial(_integer, 0, "an integer of 0 or more")


def unit_interval(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a number in [0, 1], got {text!r}")
    return number


def amount(text: str) -> str:
    if amount_of(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an amount of memory such as 256MB, got {text!r}")
    return text


def plot_file(text: str) -> Path:
    try:
        return picture_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
