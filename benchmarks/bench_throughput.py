"""Throughput of every backend that runs here, and a guard: ``python -m pytest benchmarks`` (needs pytest-benchmark).

The yardstick measures more and more precisely; this is for comparing runs (``--benchmark-autosave``,
``--benchmark-compare``) and for noticing a collapse.
"""

from collections.abc import Callable
from functools import partial
from timeit import Timer
from typing import Any

import pytest

import fastgae
from rollouts import make_rollout, outputs_like, same_bits
from timing import calls_per_sample, sample

BACKENDS = [backend.name for backend in fastgae.backends() if backend.available]
SHAPES: dict[str, dict[str, Any]] = {
    "128x8": {"steps": 128, "envs": 8},
    "128x1024": {"steps": 128, "envs": 1024},
    "2048x64": {"steps": 2048, "envs": 64},
    "128x1024-env-major": {"steps": 128, "envs": 1024, "env_major": True},
}
# Speed-up over numpy, one thread, that a backend is meant to have; with out= but for the small call.
PROMISED = {
    ("cpp", "128x8"): 60,
    ("cpp", "128x1024"): 15,
    ("numba", "128x8"): 4,
    ("numba", "128x1024"): 7,
}
# Of what is promised, what still passes: other CPUs and noisy neighbours are no regression.
MARGIN = 0.5


def checked_call(backend: str, shape: str, *, fresh: bool = False) -> Callable[[], fastgae.GAEResult]:
    """The call on one thread, after its answer was found to have the bits of the numpy backend."""
    arguments = make_rollout(**SHAPES[shape])
    expected = fastgae.gae(**arguments, backend="numpy")
    out = None if fresh else outputs_like(arguments["rewards"])
    call = partial(fastgae.gae, **arguments, out=out, num_threads=1, backend=backend)
    assert same_bits(call(), expected)
    return call


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_throughput(benchmark: Any, backend: str, shape: str) -> None:
    call = checked_call(backend, shape)
    benchmark.group = shape
    benchmark(call)
    if benchmark.stats:  # not with --benchmark-disable
        steps = SHAPES[shape]["steps"] * SHAPES[shape]["envs"]
        benchmark.extra_info["steps_per_second"] = steps / benchmark.stats.stats.min


@pytest.mark.parametrize(("backend", "shape"), PROMISED)
def test_speed_up_over_numpy_has_not_collapsed(backend: str, shape: str) -> None:
    """Fails only where even the best sample is further behind than the margin from the worst of numpy."""
    if backend not in BACKENDS:
        pytest.skip(f"{backend} cannot run here")
    timers = [Timer(checked_call(name, shape, fresh=shape == "128x8")) for name in (backend, "numpy")]
    numbers = [calls_per_sample(timer) for timer in timers]
    # Interleaved, so that both meet the same disturbances.
    rounds = [[sample(timer, n) for timer, n in zip(timers, numbers, strict=True)] for _ in range(20)]
    samples, numpy_samples = zip(*rounds, strict=True)
    required = PROMISED[backend, shape] * MARGIN
    assert min(samples) * required <= max(numpy_samples), (
        f"{backend} was {min(numpy_samples) / min(samples):.1f} times as fast as numpy, best over best; "
        f"at least {required:g} expected"
    )
