"""Tensors on a GPU: first that the bits are those of the CPU, then the times, beside what else there is.

  python benchmarks gpu                        all tests of tests/gpu on this GPU, and then every row
  python benchmarks gpu --untested fastgae     only the times, and only of fastgae
  python benchmarks gpu --json > gpu.json

A whole call is measured from an idle GPU until its results are there. Device time is that of a replay in a CUDA graph,
in which the CPU has no part. The yardstick is one torch.add that moves as many bytes as a call must: 17 for each step.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .contenders import CONTENDERS, Contender, Rollout, made, ours, packed, takes

TESTS = Path(__file__).parents[3] / "tests" / "gpu"
BYTES_PER_STEP, BYTES_OF_ADD = 17, 12  # reward, value, flag, two results; two operands and a sum
CALLS, REPLAYS = 50, 20
CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # other contenders round in another order

# name: steps, envs, the axis of time
ROWS = {
    "16 × 4096": (16, 4096, 0),
    "32 × 4096": (32, 4096, 0),
    "32 × 16384": (32, 16384, 0),
    "128 × 16384": (128, 16384, 0),
    "1024 × 1024": (1024, 1024, 0),
    "512 × 8192 tokens, env-major": (8192, 512, 1),
}
PACKED = ("512 packed answers of 2048 … 8192 tokens", 512, 8192)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    if not torch.cuda.is_available():
        print("torch finds no GPU here, and this benchmark measures nothing else", file=sys.stderr)
        return 2
    if not args.untested and subprocess.run([sys.executable, "-m", "pytest", "-q", str(TESTS)]).returncode:
        print("the results on this GPU are not those of the CPU: see above", file=sys.stderr)
        return 1
    rows = [row for name, rollout in rollouts() for row in measured(name, rollout, args.contenders)]
    document = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    print(json.dumps(document, indent=1) if args.json else f"{document['device']}\n{table(rows)}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("contenders", nargs="*", metavar="CONTENDER", help=f"of {', '.join(CONTENDERS)}; none: all")
    add("--untested", action="store_true", help="do not run the tests first")
    add("--json", action="store_true", help="print one JSON object in place of the table")
    args = parser.parse_args(arguments)
    if unknown := set(args.contenders) - set(CONTENDERS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}")
    args.contenders = args.contenders or list(CONTENDERS)
    return args


def rollouts() -> Any:
    for name, (steps, envs, time_axis) in ROWS.items():
        yield name, made(steps, envs, time_axis, "cuda")
    name, sequences, longest = PACKED
    yield name, packed(sequences, longest, "cuda")


def measured(name: str, rollout: Rollout, contenders: Sequence[str]) -> list[dict[str, Any]]:
    """Return the times of every contender that takes a rollout, and of the yardstick."""
    elements = rollout.rewards.numel() * BYTES_PER_STEP // BYTES_OF_ADD
    a, b, total = torch.randn((3, elements), device="cuda")

    def add() -> object:
        return torch.add(a, b, out=total)

    rows = [{"row": name, "contender": "one torch.add", "call": seconds(add), "device": device_seconds(add)}]
    for key in contenders:
        contender = CONTENDERS[key]
        if not takes(contender, rollout):
            continue
        try:
            check(contender, rollout)
        except ImportError as missing:
            print(f"{contender.label}: {missing}", file=sys.stderr)
            continue

        def call(contender: Contender = contender) -> object:
            return contender.compute(rollout)

        device = None if contender.waits else device_seconds(call)
        rows.append({"row": name, "contender": contender.label, "call": seconds(call), "device": device})
    return rows


def check(contender: Contender, rollout: Rollout) -> None:
    """Assert the results of a contender: fastgae's are the bits of the CPU, and others come close."""
    expected = ours(rollout.on_the_cpu())
    for result, right in zip(contender.compute(rollout), expected, strict=True):
        if contender.compute is ours:
            assert torch.equal(result.cpu(), right)
        else:
            torch.testing.assert_close(result.cpu(), right, **CLOSE)


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, from an idle GPU until it is idle again."""
    times = []
    for _ in range(CALLS + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def device_seconds(call: Callable[[], object]) -> float:
    """Return the time of a replay of a call in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()  # which compiles what it needs
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    del kept
    return begin.elapsed_time(end) / 1000 / REPLAYS


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the times in microseconds, and how many times a torch.add takes as long on the device."""
    lines = [f"{'rollout':42} {'contender':28} {'call us':>10} {'device us':>10} {'/ add':>7}"]
    adds = {row["row"]: row["device"] for row in rows if row["contender"] == "one torch.add"}
    for row in rows:
        device = f"{1e6 * row['device']:10.1f} {row['device'] / adds[row['row']]:7.2f}" if row["device"] else ""
        lines.append(f"{row['row']:42} {row['contender']:28} {1e6 * row['call']:10.1f} {device}")
    return "\n".join(lines)
