"""How far is fastgae from the limit of this machine? One command, one table: every kind of rollout on every backend.

Goals are ratios to the limit. For a row in cache it is ``np.add(a, b, out=c)`` over as many elements of the same dtype
as the rollout has steps. For a row from memory it is a float32 addition with streaming stores, which moves 12 bytes
per step, times the bytes that a step of the row moves over 12. GAE with both outputs moves 17: it reads a reward, a
value and a flag, and writes an advantage and a return. A row comes from memory where its arrays exceed the
last-level cache that the system reports. Absolute times change from machine to machine, ratios to the limit less.

Every call is the whole public call, and is first checked to give the bits of the numpy backend. A sample is a run of
calls of about 5 ms, or one longer call. The backends take turns, each sample right after one of np.add, so that all
meet the same disturbances. A goal is judged by best sample over best sample: on a shared machine disturbances only ever
add time, so the best sample repeats. The median of the ratios of neighbouring samples is shown beside it.

cpp runs by itself and on each of its CPU targets; the report ends with the rows in which another target beats its own
choice. The goals are for cpp and its wide targets, and for numba where one is named.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import fastgae
from speed.contenders import default_and_targets
from speed.machine import describe_machine, usable_cpus
from speed.measured import measure
from speed.shown import as_document, track
from speed.table import YARDSTICK

from . import shapes
from .findings import cost_of_import
from .goals import contenders, is_cpp
from .report import show

SECONDS, QUICK_SECONDS = 0.5, 0.1  # of samples per row and backend, the yardstick's included

EXAMPLES = """\
examples:
  python benchmarks/yardstick.py                          everything, four to six minutes
  python benchmarks/yardstick.py --quick                  one row of each kind, less than a minute
  python benchmarks/yardstick.py --backend cpp --rows "small call" --random
  python benchmarks/yardstick.py --backend cpp --rows env-major --rows 128x8
  python benchmarks/yardstick.py --backend cpp --rows memory --seconds 10
  python benchmarks/yardstick.py --backend cpp:avx2 --backend cpp:baseline --rows "in cache"
  python benchmarks/yardstick.py --json                   JSON on stdout in place of the table
  python benchmarks/yardstick.py --json yardstick.json    both
"""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", action="append", metavar="NAME", help="only this one, such as cpp or cpp:avx2; may be repeated")
    add("--rows", action="append", metavar="TEXT", help="only rows whose name contains this; may be repeated")
    add("--threads", type=int, default=1, metavar="N", help="num_threads of every call; the goals are for 1 (default)")
    add("--quick", action="store_true", help="one row of each kind, less often")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help=f"samples per row and backend ({SECONDS:g}, or {QUICK_SECONDS:g} if --quick): more, less noise",
    )
    add("--random", action="store_true", help="also random shapes, strides and alignments, each against its neighbours")
    add("--json", nargs="?", const="-", metavar="FILE", help="JSON to a file, or to stdout in place of the table")
    args = parser.parse_args(arguments)
    if args.threads < 1:
        parser.error(f"argument --threads: expected a positive integer, got {args.threads}")
    if args.seconds is None:
        args.seconds = QUICK_SECONDS if args.quick else SECONDS
    if not 0 < args.seconds < float("inf"):
        parser.error(f"argument --seconds: expected a positive number, got {args.seconds}")
    if args.json not in (None, "-") and not Path(args.json).parent.is_dir():
        parser.error(f"argument --json: there is no directory {str(Path(args.json).parent)!r}")
    args.backend = list(dict.fromkeys(args.backend or default_and_targets()))
    for name in args.backend:
        try:
            fastgae.gae([0.0], [0.0, 0.0], [False], backend=name)
        except (ValueError, fastgae.BackendUnavailableError) as error:
            parser.error(f"argument --backend: {error}")

    known = [entry for entry in YARDSTICK if not (entry.two_threads and usable_cpus() < 2)]
    wanted = [entry for entry in known if not args.rows or any(entry.row.matches(text) for text in args.rows)]
    if args.quick:
        wanted = [entry for entry in wanted if entry.quick]
    args.todo = {entry.row: who for entry in wanted if (who := contenders(entry, args.backend, args.threads))}
    if not args.todo:
        parser.error("no such row; there are\n  " + "\n  ".join(entry.row.name for entry in known))
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    machine = describe_machine()
    measured = [measure(row, args.todo[row], args.seconds) for row in track(list(args.todo))]
    findings = [] if args.rows else [cost_of_import()]
    if args.random:
        findings += [each for name in args.backend if is_cpp(name) for each in shapes.worst_of_random(name)]
    found = {"findings": [each._asdict() for each in findings]}
    document = json.dumps(as_document(measured, machine) | found, indent=2)
    if args.json == "-":
        print(document)
    else:
        show(measured, findings, machine)
        if args.json:
            Path(args.json).write_text(document + "\n")
    return 0 if all(result.right for entry in measured for result in entry.results) else 1
