"""Backend × CPU target × dtype × layout, once for all exactness tests, and the fixtures that other tests share."""

import contextlib
import functools
import hashlib
import importlib
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fastgae
from cases import Case, assert_same_bits, make_case
from fastgae import _dispatch
from layouts import LAYOUTS, Layout, poisoned

# Every way to run that this machine has: "numpy", "numba", "cpp:avx2", "cpp:baseline" ...
BACKENDS = [
    f"{info.name}:{target}" if target else info.name
    for info in fastgae.backends()
    if info.available
    for target in (info.targets or [None])
]
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture(params=[layout.name for layout in LAYOUTS])
def layout(request):
    return next(layout for layout in LAYOUTS if layout.name == request.param)


_answers: dict[bytes, fastgae.GAEResult] = {}


def reference(case: Case):
    """What the numpy backend answers for plain arrays: the bits that everything else must give. Slow, so done once."""
    key = hashlib.blake2b(digest_size=16)
    for name, given in case.arguments().items():
        array = np.asarray(given)
        key.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    if key.digest() not in _answers:
        _answers[key.digest()] = fastgae.gae(**case.arguments(), backend="numpy", num_threads=1)
    return _answers[key.digest()]


@contextlib.contextmanager
def no_short_cut(backend):
    """Hide the backend's short cut, so that its kernel is given a Rollout."""
    module = importlib.import_module("fastgae._backends." + backend.partition(":")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(module, "short_cut", raising=False)
        _dispatch.resolve.cache_clear()
        yield
    _dispatch.resolve.cache_clear()


def memory_order(array):
    """Shape, dtype and strides; the stride of an axis that holds one element says nothing."""
    return array.shape, array.dtype, [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


@dataclass(frozen=True)
class Variant:
    """One way to compute: a backend on a CPU target, a dtype and a layout."""

    backend: str
    dtype: np.dtype
    layout: Layout

    def run(self, case: Case, **options):
        """The plain (T, N) results, and the plain case that was computed; the call must warn of nothing."""
        arguments, plain = self.layout.arguments(case)
        arrays = {name: a for name, a in arguments.items() if isinstance(a, np.ndarray)}
        before = {name: a.tobytes() for name, a in arrays.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = fastgae.gae(**arguments, backend=self.backend, **options)
        for name, a in arrays.items():
            assert a.tobytes() == before[name], f"{name} was written to"
        if "out" not in options and 0 not in arguments["rewards"].strides:
            like_rewards = memory_order(np.empty_like(arguments["rewards"], self.dtype))
            assert [memory_order(array) for array in result] == [like_rewards] * 2
        return tuple(None if a is None else self.layout.plain("advantages", a) for a in result), plain

    def check(self, case: Case, **options):
        """The results are those of the reference, bit for bit: in fresh memory, in out, and without any short cut."""
        got, plain = self.run(case, **options)
        expected = reference(plain)
        out = tuple(poisoned(self.layout.shape(case.rewards).shape, self.dtype) for _ in range(2))
        filled, _ = self.run(case, out=out, **options)
        with no_short_cut(self.backend):
            the_long_way, _ = self.run(case, **options)
        for what, pair in (("fresh", got), ("in out", filled), ("the long way", the_long_way)):
            assert_same_bits(pair[0], expected.advantages, f"advantages, {what}:")
            assert_same_bits(pair[1], expected.returns, f"returns, {what}:")
        return got


@pytest.fixture
def variant(backend, dtype, layout):
    return Variant(backend, dtype, layout)


@pytest.fixture
def python(tmp_path):
    """Run code in a fresh interpreter with nothing of fastgae's in its environment but what is given; its output."""

    def run(code, *arguments, check=True, **environment):
        settings = ("FASTGAE_", "OMP_", "NUMBA_")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
        package = str(Path(fastgae.__file__).parents[1])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            env={**ours, "PYTHONPATH": paths, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.strip()
        return done

    return run


@pytest.fixture
def collected():
    """Collect a rollout, as the demo does."""
    from fastgae.cli import rollout  # here, for it needs Gymnasium and most tests do not

    def collect(env_id, num_envs, num_steps, seed=0):
        with contextlib.closing(rollout.make_envs(env_id, num_envs)) as envs:
            return rollout.collect(envs, num_steps, seed)

    return collect


@pytest.fixture(scope="session")
def large():
    """(size, dtype) -> a large case and its reference, computed once: a long rollout is slow in the reference."""

    @functools.cache
    def made(size, dtype):
        case = make_case(size, dtype)
        return case, reference(case)

    return made
