"""Check the options of the commands."""

import argparse
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fastgae._support.memory import amount_of
from fastgae._support.pictures import picture_path

T = TypeVar("T", int, float)


class CommandError(Exception):
    """End the command with one line on stderr and this exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(" ".join(message.split())))
        self.exit_code = exit_code


def printable(line: str) -> str:
    """Escape control characters, because those in a file's name, or in names in the file, would steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _number(kind: Callable[[str], T], least: T, most: float, expected: str) -> Callable[[str], T]:
    def read(text: str) -> T:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


positive = _number(int, 1, math.inf, "a positive integer")
non_negative = _number(int, 0, math.inf, "an integer of 0 or more")
unit_interval = _number(float, 0.0, 1.0, "a number in [0, 1]")


def amount(text: str) -> str:
    if amount_of(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an amount of memory such as 256MB, got {text!r}")
    return text


def plot_file(text: str) -> Path:
    try:
        return picture_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
