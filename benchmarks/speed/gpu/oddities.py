"""What is unusual on a GPU, each in a process of its own: ``python -m speed.gpu.oddities NAME [--dry]``.

Each is right if its results have the bits of the CPU. With --dry, Triton's interpreter computes small tensors.
"""

import argparse
import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

import fastgae

from .contenders import Rollout, made, on_the_gpu, ours, packed

LARGER = 2**31 + 2**20  # elements of an array


class Place:
    """The device, and sizes for it."""

    def __init__(self, dry: bool):
        self.dry, self.device = dry, "cpu" if dry else "cuda"

    def rollout(self, steps: int, envs: int, **how: Any) -> Rollout:
        return made(min(steps, 60) if self.dry else steps, min(envs, 5) if self.dry else envs, 0, self.device, **how)


def right(rollout: Rollout, got: Any = None) -> None:
    """Assert the bits of the CPU; NaN equals NaN."""
    for result, expected in zip(got or on_the_gpu(rollout), ours(rollout.on_the_cpu()), strict=True):
        torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def pieces(place: Place) -> None:
    """Pieces whose warm-up is too short, so that nearly each of them is computed again."""
    from fastgae._backends.triton import recursion

    recursion.WARM_UP, recursion.SHORTEST_PIECE, recursion.WORTHWHILE = 1e-3, 16, 1.0
    right(place.rollout(3000, 7))
    right(place.rollout(10_000, 1))  # so many that a program has several warps


def sequences(place: Place) -> None:
    for discounted in (True, False):
        right(packed(5, 40 if place.dry else 3000, place.device, discounted))


def means(place: Place) -> None:
    for option in ("normalize", "mask"):
        right(place.rollout(700, 300, option=option))


def threads(place: Place) -> None:
    """The first call of a process, from four threads at once."""
    rollout, begin = place.rollout(100, 70), threading.Barrier(4)

    def call(_: int) -> Any:
        begin.wait()
        return on_the_gpu(rollout)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(call, range(4)):
            right(rollout, got)


def graph(place: Place) -> None:
    """A captured call, after calls with other shapes and dtypes."""
    rollout = place.rollout(100, 70)
    for each in (rollout, place.rollout(90, 80), place.rollout(100, 70, option="float64")):
        on_the_gpu(each)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        got = on_the_gpu(rollout)
    rollout.rewards.mul_(2)
    captured.replay()
    right(rollout, got)


def reduced_overhead(place: Place) -> None:
    """In code that torch.compile captures in CUDA graphs by itself."""
    rollout = place.rollout(100, 70)
    compiled = torch.compile(
        lambda r, v, e: fastgae.gae(2 * r, v, e, gamma=0.99, gae_lambda=0.95), mode="reduce-overhead"
    )
    doubled = rollout.moved(torch.Tensor.clone)
    doubled.rewards.mul_(2)
    for _ in range(4):
        right(doubled, [each.clone() for each in compiled(rollout.rewards, rollout.values, rollout.terminated)])


def one_nan(place: Place) -> None:
    """A trajectory with one NaN, which passes all steps before it; print the time."""
    rollout = place.rollout(10**6, 1)
    rollout.terminated.zero_()
    rollout.rewards[-rollout.steps // 4] = float("nan")
    right(rollout)
    start = time.perf_counter()
    on_the_gpu(rollout)[0].sum().item()
    print(f"{1e3 * (time.perf_counter() - start):.1f} ms")


def large(place: Place) -> None:
    """Arrays of more than 2^31 elements, of which some envs are compared."""
    envs = 5 if place.dry else LARGER // 2048
    shape = 64 if place.dry else 2048, envs
    rewards = torch.randn(shape, device=place.device, dtype=torch.bfloat16)
    ends = torch.rand(envs, device=place.device) < 0.1
    got = fastgae.gae(rewards, rewards, ends.expand(shape), last_values=0.0, backend="triton")
    some = torch.tensor([0, 1, envs // 2, envs - 1], device=place.device)
    few, end = rewards[:, some].cpu(), ends[some].expand(shape[0], 4).cpu()
    expected = fastgae.gae(few, few, end.contiguous(), last_values=0.0)
    for result, wanted in zip(got, expected, strict=True):
        assert torch.equal(result[:, some].cpu(), wanted), "these are not the bits of the CPU"


def programs_of_jax(place: Place) -> None:
    """Calls as the fuzzer draws them, in ``jax.jit``."""
    import jax
    import numpy as np

    from fastgae._interop.libraries import FUNCTIONS
    from support.drawn import drawn
    from support.functions import arrays_of

    for name in ("gae",) if place.dry else FUNCTIONS:
        for function, given in drawn(name):
            arrays = {each: jax.numpy.asarray(a) for each, a in given.items() if isinstance(a, np.ndarray)}
            others = {each: given[each] for each in given if each not in arrays}
            got = jax.jit(functools.partial(function, **others))(**arrays)
            for result, wanted in zip(arrays_of(got), arrays_of(function(**given)), strict=True):
                np.testing.assert_array_equal(result, wanted.astype(result.dtype), f"{name}: {others}", strict=True)


ODDITIES: dict[str, Callable[[Place], None]] = {
    each.__name__: each
    for each in (pieces, sequences, means, threads, graph, reduced_overhead, one_nan, large, programs_of_jax)
}
SANITIZED = "pieces", "sequences", "means"  # also by compute-sanitizer
ON_A_GPU = "threads", "graph", "reduced_overhead"  # the interpreter has one thread and no graphs

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=ODDITIES)
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    ODDITIES[args.name](Place(args.dry))
