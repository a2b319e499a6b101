"""Tensors on a GPU: the times of fastgae beside what else there is, each with the bits or numbers that it must have.

  python benchmarks gpu                          every row, and then all tests of tests/gpu on this GPU
  python benchmarks gpu --untested fastgae       only the times, and only of fastgae and of the yardstick
  python benchmarks gpu --rows gpu.jsonl         also append each row to a file, one line of JSON
  TRITON_INTERPRET=1 python benchmarks gpu --dry small rows without a GPU, whose times mean nothing

A whole call is measured from an idle GPU until its results are there. Device time is that of a CUDA graph of up to 20
calls, in which the CPU has no part. The yardstick is one torch.add that moves as many bytes as a call must: 17 for each
step. Each row is printed as soon as it is measured, fastgae's first. A contender that fails loses only that row.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .contenders import CONTENDERS, YARDSTICK, Contender, Rollout, made, on_the_gpu, ours, packed, takes

TESTS = Path(__file__).parents[3] / "tests" / "gpu"
CALLS, REPLAYS, LONGEST = 50, 20, 1.0  # of each row, at most; seconds
IN_A_GRAPH, GRAPH = 20, 0.002  # calls, and seconds that they may take, because a loop in torch is many launches
SMALLER = 128  # times are the rows of a dry run
CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # other contenders round in another order


class Row(NamedTuple):
    name: str
    steps: int
    envs: int
    time_axis: int = 0
    discounted: bool = True  # False: gamma and lambda are 1

    def rollout(self, device: str, smaller: int) -> Rollout:
        steps, envs = max(2, self.steps // smaller), max(1, self.envs // smaller)
        if self.name.startswith("packed"):
            return packed(envs, max(8, steps), device)
        return made(steps, envs, self.time_axis, device, self.discounted)


ROWS = (
    Row("24 × 4096", 24, 4096),
    Row("128 × 4096", 128, 4096),
    Row("1024 × 16384", 1024, 16384),
    Row("512 × 8192 tokens, env-major", 8192, 512, 1),
    Row("512 × 8192 tokens, gamma lambda 1", 8192, 512, 1, False),
    Row("64 × 32768, env-major", 32768, 64, 1),
    Row("one trajectory of 1,000,000", 1_000_000, 1),
    Row("packed: 512 answers of 2048 … 8192 tokens", 8192, 512),
)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if not (args.dry or torch.cuda.is_available()):
        print("torch finds no GPU here, and this benchmark measures nothing else; see --dry", file=sys.stderr)
        return 2
    name = "a dry run" if args.dry else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}\n{HEAD}", flush=True)
    wrong = 0
    for found in measured(args.contenders, "cpu" if args.dry else "cuda", SMALLER if args.dry else 1):
        print(line(found), flush=True)
        wrong += "fastgae" in found["contender"] and "failed" in found
        if args.rows:
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"device": name, "torch": torch.__version__, **found}) + "\n")
    if not (args.untested or args.dry):
        # Side by side, because most of the time each process compiles kernels.
        side_by_side = [sys.executable, "-m", "pytest", "-q", "-n", "auto", str(TESTS)]
        wrong += subprocess.run(side_by_side).returncode
    return int(bool(wrong))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("contenders", nargs="*", metavar="CONTENDER", help=f"of {', '.join(CONTENDERS)}; none: all")
    add("--untested", action="store_true", help="do not run the tests")
    add("--rows", type=Path, metavar="FILE", help="append each row to this file")
    add("--dry", action="store_true", help="small rows, by Triton's interpreter")
    args = parser.parse_args(arguments)
    if unknown := set(args.contenders) - set(CONTENDERS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}")
    args.contenders = args.contenders or list(CONTENDERS)
    return args


def measured(contenders: Sequence[str], device: str, smaller: int) -> Iterator[dict[str, Any]]:
    """Yield the times of every contender with every rollout that it takes; the yardstick and fastgae come first."""
    for contender in (YARDSTICK, *(CONTENDERS[key] for key in contenders)):
        for row in ROWS:
            absent = False
            found: dict[str, Any] = {"row": row.name, "contender": contender.label}
            try:
                rollout = row.rollout(device, smaller)
                if not takes(contender, rollout):
                    continue
                check(contender, rollout)
                call = contender.ready(rollout)
                found["call"] = seconds(call)
                if device == "cuda" and not contender.waits:
                    found["device"] = device_seconds(call, found["call"])
            except Exception as error:  # the next row may work
                found["failed"] = f"{type(error).__name__}: {error}".partition("\n")[0]
                absent = isinstance(error, (ImportError, OSError))  # such as a library, or nvcc
            yield found
            if absent:
                break


def check(contender: Contender, rollout: Rollout) -> None:
    """Assert the results of a contender: fastgae's are the bits of the CPU, and others come close."""
    if contender is YARDSTICK:
        return
    expected = ours(rollout.on_the_cpu())
    for result, right in zip(contender.compute(rollout), expected, strict=True):
        if contender.compute is on_the_gpu:
            assert torch.equal(result.cpu(), right), "these are not the bits of the CPU"
        else:
            torch.testing.assert_close(result.cpu(), right, **CLOSE)


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, from an idle GPU until it is idle again."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    call()
    times: list[float] = []
    while not times or (len(times) < CALLS and sum(times) < LONGEST):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def device_seconds(call: Callable[[], object], whole: float) -> float:
    """Return the time of a call in a CUDA graph of as many calls as make the launch of the graph not matter."""
    count = max(1, min(IN_A_GRAPH, int(GRAPH / whole)))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / REPLAYS / count


HEAD = f"{'rollout':42} {'contender':28} {'call us':>12} {'device us':>12}"


def line(found: dict[str, Any]) -> str:
    """Return a row for people to read, in microseconds."""
    times = found.get("failed") or " ".join(
        f"{1e6 * found[what]:12.1f}" for what in ("call", "device") if what in found
    )
    return f"{found['row']:42} {found['contender']:28} {times}"
