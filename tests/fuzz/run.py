"""Make random calls in several processes until the time is over, and replay the calls that fail."""

import argparse
import contextlib
import multiprocessing
import os
import queue
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from support.functions import FUNCTIONS

from .check import DifferenceError, check, variants
from .choices import Choices, parse, smallest, written
from .draw import random_call

EXAMPLES = """\
examples, from the folder tests:
  python -m fuzz --seconds 60 --seed 1
  python -m fuzz --function gae --backend cpp --backend numpy
  python -m fuzz --replay 81985529216486895
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m fuzz", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="how long to go on (default: %(default)s)")
    add("--seed", type=int, help="where the cases begin (default: one that nobody knows)")
    add("--workers", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    add("--function", action="append", choices=FUNCTIONS, help="only calls of this function; may be repeated")
    add("--backend", action="append", default=[], help="only this backend; may be repeated")
    add("--most", type=int, default=3, help="stop after so many findings (default: %(default)s)")
    add("--replay", metavar="CASE", type=parse, help="make one case again, and then ever smaller ones that fail too")
    args = parser.parse_args(argv)
    functions = tuple(args.function or FUNCTIONS)
    if args.replay is not None:
        return replay(args.replay, functions, args.backend)
    return fuzz(args, functions)


def attempt(case: int | Sequence[int], functions: tuple[str, ...], backends: Sequence[str]) -> tuple[str, Choices]:
    """Make the call of a case. Return its outcome and its decisions."""
    choose = Choices(case)
    call = random_call(choose, functions)
    try:
        return check(call, backends), choose
    except DifferenceError as error:
        return f"{error}\n{call}", choose


def work(number: int, args: Any, functions: tuple[str, ...], current: Any, found: Any) -> None:
    """Run every n-th case from the seed on, with n workers. ``current`` holds the case, in case the process crashes."""
    backends = variants(args.backend)
    attempt(args.seed, functions, backends)  # compiling and importing take time that should not count
    counts: Counter[str] = Counter()
    runs, case, end = 0, args.seed + number, time.monotonic() + args.seconds
    while time.monotonic() < end:
        current.value = case
        outcome, _ = attempt(case, functions, backends)
        known = outcome in ("right", "refused")
        counts[outcome if known else "wrong"] += 1
        runs += len(backends)
        if not known:
            found.put((case, outcome))
            if counts["wrong"] >= args.most:
                break
        case += args.workers
    found.put((None, {"counts": counts, "runs": runs, "backends": backends}))


def fuzz(args: argparse.Namespace, functions: tuple[str, ...]) -> int:
    args.seed = secrets.randbits(60) if args.seed is None else args.seed
    print(f"seed {args.seed}, {args.workers} workers, {args.seconds:.0f} s", flush=True)
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    currents = [context.Value("q", -1, lock=False) for _ in range(args.workers)]
    workers = [
        context.Process(target=work, args=(i, args, functions, current, found)) for i, current in enumerate(currents)
    ]
    for worker in workers:
        worker.start()
    counts: Counter[str] = Counter()
    runs, findings, backends = 0, 0, []
    running = set(range(args.workers))
    while running or not found.empty():
        with contextlib.suppress(queue.Empty):
            case, what = found.get(timeout=0.2)
            if case is None:
                counts += what["counts"]
                runs, backends = runs + what["runs"], what["backends"]
            else:
                findings += 1
                report(case, what, args)
        for i in [i for i in running if not workers[i].is_alive()]:
            running.discard(i)
            if workers[i].exitcode:
                findings += 1
                report(currents[i].value, f"the process ended with status {workers[i].exitcode}", args)
    total = sum(counts.values())
    print(f"{total} calls, {runs} runs on {', '.join(backends)}: {dict(counts)}; {findings} findings", flush=True)
    return 1 if findings or not total else 0


def report(case: int, what: str, args: argparse.Namespace) -> None:
    only = "".join(f" --function {name}" for name in args.function or ())
    only += "".join(f" --backend {name}" for name in args.backend)
    print(f"\nFOUND {what}\n  replay: cd tests && python -m fuzz --replay {case}{only}\n", flush=True)


def replay(case: int | Sequence[int], functions: tuple[str, ...], names: Sequence[str]) -> int:
    """Make a case again. If it fails, try smaller ones, each in a process of its own, which a crash may end."""
    backends = variants(names)
    choose = Choices(case)
    print(random_call(choose, functions), flush=True)

    def fails(candidate: list[int]) -> bool:
        child = multiprocessing.get_context("fork").Process(target=_child, args=(candidate, functions, backends))
        child.start()
        child.join(60)
        if child.is_alive():
            child.kill()
            child.join()
        return child.exitcode != 0

    if not fails(choose.taken):
        print("right")
        return 0
    small = smallest(choose.taken, fails)
    outcome = "the process ends with a signal" if _crashes(small, functions, backends) else ""
    print(f"\nthe smallest that fails: python -m fuzz --replay {written(small)}", flush=True)
    print(outcome or attempt(small, functions, backends)[0])
    return 1


def _crashes(case: list[int], functions: tuple[str, ...], backends: Sequence[str]) -> bool:
    child = multiprocessing.get_context("fork").Process(target=_child, args=(case, functions, backends))
    child.start()
    child.join()
    return bool(child.exitcode and child.exitcode < 0)


def _child(case: list[int], functions: tuple[str, ...], backends: Sequence[str]) -> None:
    outcome, _ = attempt(case, functions, backends)
    sys.exit(outcome not in ("right", "refused"))
