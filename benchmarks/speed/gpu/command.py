"""Tensors on a GPU: the times of fastgae beside what else there is, each with the bits or numbers that it must have.

  python benchmarks gpu                          every row, and then all tests of tests/gpu on this GPU
  python benchmarks gpu --untested fastgae       only the times, and only of fastgae and of the yardstick
  python benchmarks gpu --rows gpu.jsonl         also append each row to a file, one line of JSON
  TRITON_INTERPRET=1 python benchmarks gpu --dry small rows without a GPU, whose times mean nothing

A whole call is measured from an idle GPU until its results are there. Device time is that of a CUDA graph of calls, in
which the CPU has no part; each has a rollout of its own, so that small rollouts are not in the caches. The yardstick is
one torch.add that moves as many bytes as a call must: 17 for each step of a plain one. Beside each row is the device
time of an H200 (November 2026, torch 2.11, Triton 3.6). Each row is printed as soon as it is measured. Each contender
has a process of its own, so one that fails or hangs loses only its own rows.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fastgae

from .contenders import CONTENDERS, YARDSTICK, Contender, Rollout, made, on_the_gpu, ours, packed, takes

MAIN = str(Path(__file__).parents[2])  # the command
TESTS = Path(__file__).parents[3] / "tests" / "gpu"
FAST = "cpp", "numba"
CALLS, REPLAYS, LONGEST = 50, 20, 1.0  # of each row, at most; seconds
# Of a graph: the bytes that are in no cache, and the seconds that its calls may take; a loop in torch is many launches.
COLD, GRAPH = 2**28, 0.002
SECONDS = 540.0  # for all contenders
SMALLER = 8192  # times are the rows of a dry run
LONG = 200_000  # steps of a trajectory that takes NumPy alone some seconds
CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # other contenders round in another order


class Row(NamedTuple):
    name: str
    h200: str  # microseconds of the device, measured
    steps: int
    envs: int
    time_axis: int = 0
    discounted: bool = True  # False: gamma and lambda are 1
    option: str | None = None

    def rollout(self, device: str, smaller: int) -> Rollout:
        steps, envs = max(2, self.steps // smaller), max(1, self.envs // smaller)
        if self.name.startswith("packed"):
            return packed(envs, max(8, steps), device, self.discounted)
        return made(steps, envs, self.time_axis, device, self.discounted, self.option)


ROWS = (
    Row("24 × 4096", "2.5", 24, 4096),
    Row("128 × 4096", "4.8", 128, 4096),
    Row("1024 × 16384", "78", 1024, 16384),
    Row("512 × 8192 tokens, env-major", "54", 8192, 512, 1),
    Row("512 × 8192 tokens, gamma lambda 1", "187", 8192, 512, 1, False),
    Row("64 × 32768, env-major", "38", 32768, 64, 1),
    Row("one trajectory of 1,000,000", "31", 1_000_000, 1),
    Row("packed: 512 answers of 2048 … 8192 tokens", "47", 8192, 512),
    Row("packed, gamma lambda 1", "267", 8192, 512, 0, False),
    Row("4096 × 2048 tokens, mask", "89", 2048, 4096, 1, True, "mask"),
    Row("128 × 4096, next step", "13", 128, 4096, option="next step"),
    Row("128 × 4096, V-trace", "6.4", 128, 4096, option="V-trace"),
    Row("128 × 4096, float64", "7.2", 128, 4096, option="float64"),
    Row("128 × 4096, bfloat16", "4.7", 128, 4096, option="bfloat16"),
    Row("4096 × 2048 tokens, normalize", "154", 2048, 4096, 1, True, "normalize"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if not (args.dry or torch.cuda.is_available()):
        print("torch finds no GPU here, and this benchmark measures nothing else; see --dry", file=sys.stderr)
        return 2
    name = "a dry run" if args.dry else torch.cuda.get_device_name()
    if len(args.contenders) == 1:
        return measure(args, name)
    print(f"{name}, torch {torch.__version__}\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as answers:
        wrong = side_by_side(args, args.answers or Path(answers))
    if not (args.untested or args.dry):
        # Side by side, because most of the time each process compiles kernels.
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "auto", str(TESTS)]
        wrong += subprocess.run(tests).returncode
    return int(bool(wrong))


def side_by_side(args: argparse.Namespace, answers: Path) -> int:
    """Measure each contender in a process of its own. Return how many of fastgae's processes failed."""
    end, wrong = time.monotonic() + args.seconds, 0
    how = ["--answers", str(answers), *["--dry"] * args.dry]
    how += ["--rows", str(args.rows)] if args.rows else []
    for contender in args.contenders:
        command = [sys.executable, MAIN, "gpu", "--untested", *how, contender]
        try:
            status: int | str = subprocess.run(command, timeout=max(0.0, end - time.monotonic())).returncode
        except subprocess.TimeoutExpired:
            status = "the time is over"
        if status not in (0, 1):
            write(args.rows, {"row": "", "contender": CONTENDERS[contender].label, "failed": f"ended: {status}"})
        wrong += contender == "fastgae" and status != 0
    return wrong


def measure(args: argparse.Namespace, name: str) -> int:
    """Print and write the rows of one contender."""
    (contender,), wrong = args.contenders, 0
    device, smaller = ("cpu", SMALLER) if args.dry else ("cuda", 1)
    for found in measured(CONTENDERS[contender], device, smaller, args.answers):
        write(args.rows, {"device": name, "torch": torch.__version__, **found})
        wrong += contender == "fastgae" and "failed" in found
    return int(bool(wrong))


def write(rows: Path | None, found: dict[str, Any]) -> None:
    print(line(found), flush=True)
    if rows:
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("contenders", nargs="*", metavar="CONTENDER", help=f"of {', '.join(CONTENDERS)}; none: all")
    add("--untested", action="store_true", help="do not run the tests")
    add("--rows", type=Path, metavar="FILE", help="append each row to this file")
    add("--dry", action="store_true", help="small rows, by Triton's interpreter")
    add("--seconds", type=float, default=SECONDS, help="stop after this time (default: %(default)s)")
    add("--answers", type=Path, metavar="FOLDER", help="keep there what the CPU computes, for the next contender")
    args = parser.parse_args(arguments)
    if unknown := set(args.contenders) - set(CONTENDERS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}")
    args.contenders = args.contenders or list(CONTENDERS)
    return args


def measured(contender: Contender, device: str, smaller: int, answers: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the times of a contender with every rollout that it takes."""
    for row in ROWS:
        absent = False
        found: dict[str, Any] = {"row": row.name, "contender": contender.label, "h200": row.h200}
        try:
            rollout = row.rollout(device, smaller)
            if not takes(contender, rollout):
                continue
            found["checked"] = check(contender, rollout, answers and answers / f"{ROWS.index(row)}.pt")
            call = contender.ready(rollout)
            found["call"] = seconds(call)
            if device == "cuda" and not contender.waits:
                found["device_time"] = device_seconds(contender, rollout, found["call"])
        except Exception as error:  # the next row may work
            found["failed"] = f"{type(error).__name__}: {error}".partition("\n")[0]
            absent = isinstance(error, (ImportError, OSError))  # such as a library, or nvcc
        yield found
        if absent:
            break


def check(contender: Contender, rollout: Rollout, answer: Path | None = None) -> bool:
    """Assert the results of a contender: fastgae's are the bits of the CPU, and others come close.

    Return False where there is nothing to compare them with: without a compiled backend, the CPU would take minutes.
    """
    trajectory = rollout.steps > LONG and not any(each.available for each in fastgae.backends() if each.name in FAST)
    if contender is YARDSTICK or trajectory:
        return False
    if answer and answer.exists():
        expected = torch.load(answer)
    else:
        expected = tuple(ours(rollout.on_the_cpu()))
        if answer:
            torch.save(expected, answer)
    for result, right in zip(contender.compute(rollout), expected, strict=True):
        if contender.compute is on_the_gpu:
            assert torch.equal(result.cpu(), right), "these are not the bits of the CPU"
        else:
            torch.testing.assert_close(result.cpu(), right, **CLOSE)
    return True


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, from an idle GPU until it is idle again."""
    times_count = torch.cuda.is_available()  # in a dry run, one is enough
    wait = torch.cuda.synchronize if times_count else lambda: None
    call()
    times: list[float] = []
    while not times or (times_count and len(times) < CALLS and sum(times) < LONGEST):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def device_seconds(contender: Contender, rollout: Rollout, whole: float) -> float:
    """Return the time of a call in a CUDA graph of calls, each with other tensors."""
    count = max(1, min(COLD // rollout.bytes, int(GRAPH / whole)))
    calls = [contender.ready(rollout.copied()) for _ in range(count)]
    call = calls[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / REPLAYS / count


HEAD = f"{'rollout':42} {'contender':28} {'call us':>12} {'device us':>12} {'H200':>10}"


def line(found: dict[str, Any]) -> str:
    """Return a row for people to read, in microseconds."""
    times = " ".join(f"{1e6 * found[what]:12.1f}" if what in found else " " * 12 for what in ("call", "device_time"))
    measured = f"{times} {found.get('h200', ''):>10}"
    return f"{found['row']:42} {found['contender']:28} {found.get('failed') or measured}"
