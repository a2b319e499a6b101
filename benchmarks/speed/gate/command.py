"""Did anything become slower? Checks that noise cannot fake; exit status 1 when one of them is red.

  floors          ratios inside one run against accepted floors
  choices         threads, streaming stores and CPU targets, each against the other choice in the same run
  counts          bytes, page faults, launches and the like, against accepted numbers
  instructions    instructions of the compiled module and of Python by call, against accepted numbers

Without an argument: all of them, of the fastgae that is installed. What a check needs and does not find, such as
valgrind, is red where the environment variable CI is set, and elsewhere left out.
"""

import argparse
from collections.abc import Sequence

from . import choices, counts, floors, instructions, planted
from .accepted import judged

CHECKS = {"floors": floors, "choices": choices, "counts": counts, "instructions": instructions}
ACCEPTED = {"floors": floors, "counts": counts, "instructions": instructions}  # compared with numbers in a file


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if args.accept:
        print(*(line for name in args.checks for line in ACCEPTED[name].accept()), sep="\n")
        return 0
    if args.self_test:
        return judged(planted.check())
    return judged(line for name in args.checks or CHECKS for line in CHECKS[name].check())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; none: all")
    parser.add_argument(
        "--accept", action="store_true", help="write what is measured here into the files of these checks"
    )
    parser.add_argument(
        "--self-test", action="store_true", help="plant five regressions in a copy, and see each check red; minutes"
    )
    args = parser.parse_args(arguments)
    if unknown := set(args.checks) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    if args.accept and not (args.checks and set(args.checks) <= set(ACCEPTED)):
        parser.error(f"--accept needs the names of checks, of {', '.join(ACCEPTED)}")
    return args
