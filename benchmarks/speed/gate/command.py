"""Has anything become slower? Four checks that noise cannot fake; exit status 1 when one of them is red.

  floors          ratios inside one run against committed floors (floors.json)
  choices         threads, streaming stores and CPU targets, each against the other choice in the same run
  instructions    counts by cachegrind against committed ones (instructions.json), at most 2 % more
  ab BASE HEAD    two commits built side by side and timed in turn: red where their ranges do not overlap

Without an argument: all but the last, of the fastgae that is installed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import ab, choices, floors, instructions
from .verdicts import Report, as_markdown, as_text

CHECKS = {"floors": floors, "choices": choices, "instructions": instructions}
ACCEPTED = {"floors": floors, "instructions": instructions}  # compared with numbers in a file


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    markdown = argparse.ArgumentParser(add_help=False)
    # Suppressed, so that the default of the subcommand does not replace a value given before it.
    markdown.add_argument(
        "--markdown", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="append the tables to this file"
    )
    words = parser.add_subparsers(dest="check", metavar="CHECK")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="append the tables to this file")
    for name in CHECKS:
        word = words.add_parser(name, parents=[markdown])
        if name in ACCEPTED:
            word.add_argument("--accept", action="store_true", help="write what is measured here, and show old and new")
    word = words.add_parser("ab", parents=[markdown])
    word.add_argument("base", metavar="BASE", help="a revision that git knows")
    word.add_argument("head", metavar="HEAD", help="another")
    return parser.parse_args(arguments)


def reports(args: argparse.Namespace) -> list[Report]:
    if args.check == "ab":
        return ab.check(args.base, args.head)
    return [CHECKS[name].check() for name in ([args.check] if args.check else CHECKS)]


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if getattr(args, "accept", False):
        print(ACCEPTED[args.check].accept())
        return 0
    red = False
    for report in reports(args):
        print(as_text(report), flush=True)
        if args.markdown:
            with args.markdown.open("a", encoding="utf-8") as file:
                file.write(as_markdown(report) + "\n")
        red |= report.red
    return int(red)
