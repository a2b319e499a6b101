"""The backends and CPU targets that this machine has, and a way to run without a backend's short cut."""

import contextlib
import importlib

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch

# Every backend and CPU target that this machine has: "numpy", "numba", "cpp:avx2", "cpp:baseline" ...
BACKENDS = [
    f"{info.name}:{target}" if target else info.name
    for info in fastgae.backends()
    if info.available and info.device == "CPU"
    for target in (info.targets or [None])
]
# One CPU target for each backend: the best one. The other targets differ in their kernels alone.
ONE_TARGET = [*{name.partition(":")[0]: name for name in reversed(BACKENDS)}.values()][::-1]
CPP = [name for name in BACKENDS if name.startswith("cpp")]
# All but numpy, which is the reference, and slow on large rollouts.
WITH_KERNELS = [name for name in BACKENDS if name != "numpy"]
needs_cpp = pytest.mark.skipif(not CPP, reason="cpp is not built")
needs_numba = pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed")
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


@contextlib.contextmanager
def no_short_cut(backend):
    """Hide the backend's short cut, so that every call is checked."""
    module = importlib.import_module("fastgae._backends." + backend.partition(":")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(module, "short_cut", raising=False)
        dispatch.resolve.cache_clear()
        yield
    dispatch.resolve.cache_clear()
