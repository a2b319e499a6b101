"""Make so many random calls in several processes, and replay the calls that fail.

The calls come in blocks, each with a seed of its own. hypothesis shrinks a call that fails, and says how to
replay it. If a call ends its process, its block is drawn again, with each call in a process of its own.
"""

import argparse
import base64
import contextlib
import multiprocessing
import os
import queue
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase

from support.functions import FUNCTIONS

from .calls import Call
from .check import DifferenceError, check, variants
from .strategy import calls

EXAMPLES = """\
examples, from the folder tests:
  python -m fuzz --calls 100000 --seed 1
  python -m fuzz --function gae --backend cpp --backend numpy
  python -m fuzz --replay AXicY2CAAkYGBgYAABAAAg==
"""

BLOCK = 500  # calls; hypothesis remembers what it drew, so one run of a million would need much memory
SETTINGS = hypothesis.settings(
    database=None,
    derandomize=False,  # which hypothesis would set where CI is set
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m fuzz", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--calls", type=int, default=20_000, help="how many calls to make (default: %(default)s)")
    add("--seed", type=int, help="of the first block (default: one that nobody knows)")
    add("--workers", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    add("--function", action="append", choices=FUNCTIONS, help="only calls of this function; may be repeated")
    add("--backend", action="append", default=[], help="only this backend; may be repeated")
    add("--most", type=int, default=3, help="stop after so many findings (default: %(default)s)")
    add("--as-found", action="store_true", help="do not shrink a call that fails, nor look for one after a crash")
    add("--replay", metavar="CASE", help="make one call again, as a finding says")
    args = parser.parse_args(argv)
    functions = tuple(args.function or FUNCTIONS)
    return replay(args.replay, functions, args.backend) if args.replay else fuzz(args, functions)


def block(
    seed: int, count: int, functions: Sequence[str], make: Callable[[Call], Any], *, smallest: bool = True
) -> str:
    """Make the calls of a block. Return what was found, with the smallest call; "" if all is right."""

    @hypothesis.seed(seed)
    @hypothesis.settings(SETTINGS, max_examples=count, phases=SETTINGS.phases if smallest else (Phase.generate,))
    @hypothesis.given(calls(functions))
    def run(call: Call) -> None:
        make(call)

    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            run()
    except DifferenceError as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        only = "".join(f" --function {name}" for name in functions) if len(functions) < len(FUNCTIONS) else ""
        case = notes.rpartition("b'")[2].partition("'")[0]
        shown = notes.partition("\n\nYou can reproduce")[0]
        return f"{error}\n{shown}\n  replay: cd tests && python -m fuzz{only} --replay {case}"
    except hypothesis.errors.Flaky as error:  # as after a read of memory that nobody has written
        return "; ".join(map(str, getattr(error, "exceptions", [error]))) + "; but not every time"
    return ""


def work(number: int, args: Any, functions: tuple[str, ...], backends: Sequence[str], current: Any, found: Any) -> None:
    """Run every n-th block, with n workers.

    ``current`` holds the block and its last call, in case of a crash, and how many calls this worker has made.
    """
    counts: Counter[str] = Counter()

    def make(call: Call) -> None:
        current[2] += 1
        current[3] += 1
        counts[check(call, backends)] += 1

    for at in range(number * BLOCK, args.calls, args.workers * BLOCK):
        current[:3] = seed, count, _ = (args.seed << 32) + at, min(BLOCK, args.calls - at), 0
        if said := block(seed, count, functions, make, smallest=not args.as_found):
            found.put(said)
    found.put(counts)


def fuzz(args: argparse.Namespace, functions: tuple[str, ...]) -> int:
    args.seed = secrets.randbits(32) if args.seed is None else args.seed
    print(f"seed {args.seed}, {args.workers} workers, {args.calls} calls", flush=True)
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    backends = variants(args.backend)
    currents = [context.Array("q", 4, lock=False) for _ in range(args.workers)]
    workers = [
        context.Process(target=work, args=(i, args, functions, backends, current, found))
        for i, current in enumerate(currents)
    ]
    for worker in workers:
        worker.start()
    counts: Counter[str] = Counter()
    findings, running = 0, set(range(args.workers))
    while (running or not found.empty()) and findings < args.most:
        with contextlib.suppress(queue.Empty):
            what = found.get(timeout=0.2)
            if isinstance(what, str):
                findings += 1
                print(f"\nFOUND {what}\n", flush=True)
            else:
                counts += what
        for i in [i for i in running if not workers[i].is_alive()]:
            running.discard(i)
            if workers[i].exitcode:
                findings += 1
                said = "" if args.as_found else crashed(*currents[i][:3], functions, backends)
                print(f"\nFOUND the process ended with status {workers[i].exitcode}: {said}\n", flush=True)
    for worker in workers:
        worker.terminate()
    total = sum(current[3] for current in currents)
    print(f"{total} calls on {', '.join(backends)}: {dict(counts)}; {findings} findings", flush=True)
    return 1 if findings or not total else 0


def crashed(seed: int, count: int, number: int, functions: tuple[str, ...], backends: Sequence[str]) -> str:
    """Draw a block again up to the call that ended its process, and return the smallest call that does."""
    made = 0

    def make(call: Call) -> None:
        nonlocal made
        made += 1
        if made >= number:
            in_a_child(call, backends)

    return block(seed, count, functions, make) or "not again, so it is not a single call"


def in_a_child(call: Call, backends: Sequence[str]) -> None:
    child = multiprocessing.get_context("fork").Process(target=check, args=(call, backends))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        child.join()
    if child.exitcode:
        raise DifferenceError(f"the process ends with status {child.exitcode}")


def replay(case: str, functions: tuple[str, ...], names: Sequence[str]) -> int:
    """Make a call again, in this process."""
    backends = variants(names)

    @hypothesis.reproduce_failure(hypothesis.__version__, base64.b64encode(base64.b64decode(case)))
    @hypothesis.settings(SETTINGS)
    @hypothesis.given(calls(functions))
    def run(call: Call) -> None:
        print(call, flush=True)
        check(call, backends)

    try:
        run()
    except DifferenceError as error:
        print(error)
        return 1
    except hypothesis.errors.DidNotReproduce:
        print("right")
    return 0
